"""The conversion of one entry to the other protocol's form, for `interop.py`; runs on any thread.

A conversion uses only the entry; its budget limits what it expands.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from magnetar.base.errors import WireError
from magnetar.broker.log.opening import SMALL
from magnetar.ledger.entry import Entry
from magnetar.wire.convert import assembled_to_kafka, covering_batch, pulsar_to_kafka
from magnetar.wire.kafka.record_reader import TooLargeExpanded
from magnetar.wire.kafka.record_scan import Budget
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType


class Form(NamedTuple):
    """An entry in the other protocol's form; `payload` is None if it has no message."""

    payload: memoryview | None


class LastChunk(NamedTuple):
    """The entry is the last chunk of a message; the others must be found in the log first."""

    view: EntryView


class Bad(NamedTuple):
    reason: str


Outcome = Form | LastChunk | Bad
Work = tuple[Entry, int]  # with the leader epoch of its offsets
Convert = Callable[[Work, Budget], Outcome]


def convert_one(work: Work, convert: Convert) -> Outcome:
    """Convert a small entry on the event loop."""
    try:
        return convert(work, SMALL)
    except WireError as error:
        return Bad(str(error))


def cover(entry: Entry, leader_epoch: int) -> memoryview:
    return covering_batch(entry.base_offset, entry.last_offset, leader_epoch, max(entry.max_timestamp_ms, 0))


def is_simple_for_kafka(entry: Entry) -> bool:
    """Whether the time to convert an entry depends only on its size; compressed bytes may expand to very many."""
    try:
        view = read_entry(entry.payload, verify=False)
    except WireError:
        return True
    return view.metadata.compression == CompressionType.NONE and not view.is_chunk


def convert_some(work: Sequence[Work], convert: Convert, budget: Budget) -> list[Outcome]:
    """Convert the first entries, at least one, as far as the budget allows; runs on a thread.

    Raises:
        TooLargeExpanded: the first entry alone exceeds this budget, and there is a larger one.
    """
    outcomes: list[Outcome] = []
    left = budget.bytes_max if budget == SMALL else 0
    for one in work:
        try:
            outcomes.append(convert(one, budget))
        except TooLargeExpanded as error:
            if outcomes:
                break  # a later call begins with it
            if budget == SMALL:
                raise
            outcomes.append(Bad(str(error)))
        except WireError as error:
            outcomes.append(Bad(str(error)))
        outcome = outcomes[-1]
        left -= len(outcome.payload or b"") if isinstance(outcome, Form) else 0
        if left <= 0:
            break
    return outcomes


def to_kafka(work: Work, budget: Budget) -> Outcome:
    entry, leader_epoch = work
    view = read_entry(entry.payload, verify=False)
    if view.num_messages != entry.last_offset - entry.base_offset + 1:
        return Bad(f"it has {view.num_messages} messages")
    if view.is_marker:
        return Form(cover(entry, leader_epoch))
    if view.is_chunk and not view.is_encrypted:
        metadata = view.metadata
        is_last = metadata.chunk_id == metadata.num_chunks_from_msg - 1
        return LastChunk(view) if is_last else Form(cover(entry, leader_epoch))
    return Form(pulsar_to_kafka(view, entry.base_offset, leader_epoch, budget))


def assembled(
    view: EntryView, pieces: Sequence[memoryview], offset: int, leader_epoch: int, budget: Budget
) -> Outcome:
    try:
        return Form(assembled_to_kafka(view, pieces, offset, leader_epoch, budget))
    except TooLargeExpanded as error:
        if budget == SMALL:
            raise
        return Bad(str(error))
    except WireError as error:
        return Bad(str(error))
