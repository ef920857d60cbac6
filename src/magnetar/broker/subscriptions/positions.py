"""From Pulsar's message ids and times to offsets of one partition, and back.

Positions are (ledger id, entry id) as signed numbers.  What cannot be found any more, or is not there yet, resolves
as `ReadableLog.locate` says: to the next readable entry.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple

from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.forms import Forms, cut_by_key
from magnetar.broker.subscriptions.sharing import of_entry_id
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import EntryId, LedgerId
from magnetar.wire.pulsar.entry import read_entry

NO_POSITION: Final = (-1, -1)
LATEST: Final = (1 << 63) - 1  # ledger id and entry id of Pulsar's "latest"


class LastMessage(NamedTuple):
    """Where the last message is that a consumer can get; entry_id is -1 when there is none.

    `batch_index` is -1 for a message that is not part of a batch.
    """

    ledger_id: int
    entry_id: int
    batch_index: int


async def offset_of(partition: Partition, ledger_id: int, entry_id: int) -> int:
    """The first offset of the entry at a position, of the next readable one, or the end of the log.

    Raises:
        StorageError, EntryCorrupt: the log cannot be read there.
    """
    log = partition.log
    if ledger_id >= LATEST:
        return log.high_watermark
    entry_id, _ = of_entry_id(entry_id)
    entry = await log.locate(LedgerId(ledger_id), EntryId(entry_id))
    return log.high_watermark if entry is None else max(entry.base_offset, log.log_start)


async def offsets_at(
    partition: Partition, ledger_id: int, entry_id: int, forms: Forms
) -> tuple[int, list[Range]] | None:
    """The first offset of the entry at exactly this position, and the offsets that the id stands for: all of the
    entry's, or those of a part of it (`sharing.py`).  None when there is nothing there.

    Raises:
        StorageError, EntryCorrupt: the log cannot be read there.
        WireError: the entry cannot be cut.
    """
    entry_id, number = of_entry_id(entry_id)
    entry = await partition.log.locate(LedgerId(ledger_id), EntryId(entry_id))
    if entry is None or (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):
        return None
    base = entry.base_offset
    if number is None:
        return base, [(base, entry.last_offset + 1)]
    (formed,) = await _ready(cut_by_key(forms(partition, [entry]), [entry]))
    if formed.parts is None or number >= len(formed.parts):
        return None
    return base, [(base + start, base + end) for start, end in formed.parts[number].ranges]


async def offset_at_time(partition: Partition, time_ms: int) -> int:
    """The first offset of the first entry that was published at or after `time_ms`; the log's end if none was.

    Raises as `offset_of`.
    """
    log = partition.log
    offset = log.log_start
    # The index knows the greater one of publish and event time, so what it finds may have been published earlier.
    while (entry := await log.entry_for_timestamp(time_ms, offset)) is not None:
        if published_ms(entry) >= time_ms:
            return max(entry.base_offset, log.log_start)
        offset = entry.last_offset + 1
        await asyncio.sleep(0)  # what is cached is found without waiting, and there may be much of it
    return log.high_watermark


def published_ms(entry: Entry) -> int:
    """When an entry was published, as Pulsar clients see it."""
    if entry.kind is EntryKind.KAFKA:
        return entry.max_timestamp_ms
    return read_entry(entry.payload, verify=False).publish_time_ms


async def last_message(partition: Partition, forms: Forms) -> LastMessage:
    """The last message that a consumer would be given.  Raises as `offset_of`, and where that is not known."""
    log = partition.log
    partition.check_committed(log.high_watermark)
    offset = partition.last_stable_offset - 1
    while offset >= log.log_start:
        entry = await log.entry_at(offset)
        if entry is None:
            break
        (formed,) = await _ready(forms(partition, [entry]))
        if formed.payload is not None:
            is_batch = entry.kind is EntryKind.KAFKA or read_entry(entry.payload, verify=False).is_batch
            return LastMessage(
                entry.ledger_id, entry.entry_id, entry.last_offset - entry.base_offset if is_batch else -1
            )
        offset = entry.base_offset - 1
        await asyncio.sleep(0)  # what is cached is found without waiting, and there may be much of it
    ledger_ids = log.ledger_ids
    return LastMessage(ledger_ids[-1] if ledger_ids else -1, -1, -1)


async def position_below(partition: Partition, offset: int) -> tuple[int, int]:
    """Where the last entry is that lies below `offset` as a whole: what Pulsar calls the mark-delete position.

    Raises as `offset_of`.
    """
    log = partition.log
    if offset > log.log_start:
        entry = await log.entry_at(offset - 1)
        if entry is not None and entry.last_offset < offset:
            return entry.ledger_id, entry.entry_id
        if entry is not None and entry.base_offset > log.log_start:
            return await position_below(partition, entry.base_offset)
    first = await log.entry_at(log.log_start)
    if first is not None:
        return first.ledger_id, first.entry_id - 1
    ledger_ids = log.ledger_ids
    return (ledger_ids[-1], -1) if ledger_ids else NO_POSITION


async def _ready(formed: "Sequence[Formed] | Awaitable[Sequence[Formed]]") -> Sequence[Formed]:
    return await formed if isinstance(formed, Awaitable) else formed
