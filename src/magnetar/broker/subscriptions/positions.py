"""From Pulsar's message ids and times to offsets of one partition, and back.

Positions are (ledger id, entry id) as signed numbers.  What cannot be found any more, or is not there yet, resolves
as `ReadableLog.locate` says: to the next readable entry.
"""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Final, NamedTuple

from magnetar.base.errors import BrokerError, EntryCorrupt, WireError
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.delivered import Located, ranges_of
from magnetar.broker.subscriptions.errors import MessageGone
from magnetar.broker.subscriptions.forms import Cutting, Forms, cut
from magnetar.broker.subscriptions.model import AckedId
from magnetar.broker.subscriptions.sharing import of_entry_id
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import EntryId, LedgerId
from magnetar.wire.pulsar.entry import read_entry

log: Final = logging.getLogger(__name__)

NO_POSITION: Final = (-1, -1)
LATEST: Final = (1 << 63) - 1  # ledger id and entry id of Pulsar's "latest"


class LastMessage(NamedTuple):
    """Where the last message is that a consumer can get; entry_id is -1 when there is none.

    `batch_index` is -1 for a message that is not part of a batch.
    """

    ledger_id: int
    entry_id: int
    batch_index: int


async def offset_of(log: LogView, ledger_id: int, entry_id: int) -> int:
    """The first offset of the entry at a position, of the next readable one, or the end of the log.

    Raises:
        StorageError, EntryCorrupt: the log cannot be read there.
    """
    if ledger_id >= LATEST:
        return log.high_watermark
    entry_id, _ = of_entry_id(entry_id)
    entry = await log.locate(LedgerId(ledger_id), EntryId(entry_id))
    return log.high_watermark if entry is None else max(entry.base_offset, log.log_start)


async def offsets_at(
    partition: Partition, log: LogView, ledger_id: int, entry_id: int, forms: Forms
) -> tuple[int, list[Range]] | None:
    """The first offset of the entry at exactly this position, and the offsets that the id stands for.  These are all
    offsets of the entry or, if the id names a part of it, those that are left of the part (`sharing.py`).  None when
    there is nothing there.

    Raises:
        StorageError, EntryCorrupt: the log cannot be read there.
        WireError: the entry cannot be cut.
    """
    entry_id, first = of_entry_id(entry_id)
    entry = await log.locate(LedgerId(ledger_id), EntryId(entry_id))
    if entry is None or (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):
        return None
    base = entry.base_offset
    if first is None:
        return base, [(base, entry.last_offset + 1)]
    (formed,) = await _ready(cut(forms(partition, [entry]), [entry], Cutting(by_key=True)))
    for part in formed.parts or ():
        if part.ranges[0][0] == first:
            return base, [(base + start, base + end) for start, end in part.ranges]
    return None


async def located(
    partition: Partition, view: LogView, ids: Sequence[AckedId], forms: Forms, owner: object
) -> tuple[list[Located], int]:
    """As `acknowledged_offsets`, of those that are found, and how many cannot be looked up now; `owner` is named in
    log lines.
    """
    found: list[Located] = []
    lost = 0
    for one in ids:
        try:
            place = await acknowledged_offsets(partition, view, one, forms)
        except (BrokerError, WireError) as error:
            log.warning("an acknowledgement of %s is lost: %s", owner, error)
            lost += 1
            continue
        if place is not None:
            found.append((one, *place))
        await asyncio.sleep(0)  # what is cached is found without waiting
    return found, lost


async def all_located(
    partition: Partition, view: LogView, ids: Sequence[AckedId], forms: Forms
) -> list[Located]:
    """As `located`, where none may be missing.

    Raises:
        MessageGone: what one of the ids stands for is not there, or not known any more.
        StorageError, EntryCorrupt: the log cannot be read there.
    """
    found: list[Located] = []
    for one in ids:
        try:
            place = await acknowledged_offsets(partition, view, one, forms)
        except WireError as error:
            raise EntryCorrupt(f"message {one.ledger_id}:{one.entry_id} cannot be read: {error}") from error
        if place is None:
            raise MessageGone(f"There is no message {one.ledger_id}:{one.entry_id} any more")
        found.append((one, *place))
        await asyncio.sleep(0)  # what is cached is found without waiting
    return found


async def acknowledged_offsets(
    partition: Partition, log: LogView, acked: AckedId, forms: Forms
) -> tuple[int, list[Range]] | None:
    """What an acknowledgement stands for whose entry is not remembered: as `offsets_at`.

    Where compaction may have taken messages out of the batch since, it is not known what the bits of its ack set meant:
    None, too, and their messages come again.

    Raises as `offsets_at`.
    """
    place = await offsets_at(partition, log, acked.ledger_id, acked.entry_id, forms)
    if place is None:
        return None
    base, ranges = place
    if acked.ack_set and base < log.cleaned:
        return None
    return base, ranges_of(ranges, acked.ack_set)


async def offset_at_time(log: LogView, time_ms: int) -> int:
    """The first offset of the first entry that was published at or after `time_ms`; the log's end if none was.

    Raises as `offset_of`.
    """
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


async def last_message(
    partition: Partition, forms: Forms, log: LogView | None = None, *, is_dense: bool = False
) -> LastMessage:
    """The last message that a consumer of `log`, else of all of the partition's, would be given, one that acknowledges
    if `is_dense` (`forms.Cutting`).

    Raises as `offset_of`, and where that is not known.
    """
    log = partition.log if log is None else log
    partition.check_committed(log.high_watermark)
    end = partition.last_stable_offset
    while (entry := await log.entry_before(end)) is not None:
        (formed,) = await _ready(
            cut(forms(partition, [entry]), [entry], Cutting(by_key=False, cleaned_below=log.cleaned))
        )
        if formed.payload is not None:
            is_batch = entry.kind is EntryKind.KAFKA or read_entry(entry.payload, verify=False).is_batch
            count = entry.message_count
            if formed.parts:
                ranges = formed.parts[0].ranges
                count = sum([stop - start for start, stop in ranges]) if is_dense else ranges[-1][1]
            return LastMessage(entry.ledger_id, entry.entry_id, count - 1 if is_batch else -1)
        end = entry.base_offset
        await asyncio.sleep(0)  # what is cached is found without waiting, and there may be much of it
    return LastMessage(log.last_ledger_id, -1, -1)


async def position_below(log: LogView, offset: int) -> tuple[int, int]:
    """Where the last entry is that lies below `offset` as a whole: what Pulsar calls the mark-delete position.

    Raises as `offset_of`.
    """
    entry = await log.entry_before(offset)
    if entry is not None:
        return entry.ledger_id, entry.entry_id
    first = await log.entry_at(log.log_start)
    if first is not None:
        return first.ledger_id, first.entry_id - 1
    return (log.last_ledger_id, -1) if log.last_ledger_id >= 0 else NO_POSITION


async def _ready(formed: "Sequence[Formed] | Awaitable[Sequence[Formed]]") -> Sequence[Formed]:
    return await formed if isinstance(formed, Awaitable) else formed
