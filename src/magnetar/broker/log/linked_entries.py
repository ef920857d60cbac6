"""Appends to a linked partition of another Pulsar cluster: entries as they are there, with their positions there.

An entry keeps all that its producer has written: its compression, its batch, its checksum.  What the other cluster
calls it, (ledger id, entry id), stands in front of it (`ledger/entry_format.py`), in the same write.  So the log itself
says how far the copy is, also after a kill.  It also says where in the copy a position of the other cluster is:
positions ascend with offsets, so a binary search finds it.

The position of an entry decides what happens to it.  If it is not above that of the log's last entry, the log has the
entry already, and drops it.  Otherwise it is appended.  The caller sends all entries of the other log behind a position
that the copy has, in order.

Entries of transactions come without their transaction: it has been decided there, and the copy has only what readers
see.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from magnetar.base.config import LONG_MAX
from magnetar.base.errors import WireError
from magnetar.broker.errors import CorruptMessage, InvalidRecord, OffsetsDiffer
from magnetar.broker.log.model import Position
from magnetar.broker.log.partition import Partition
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.ledger.entry_format import EntryPrefix
from magnetar.ledger.readable_log import ReadableLog
from magnetar.storage.store import Done
from magnetar.wire.pulsar.entry import ChecksumMismatch, EntryView, read_entry
from magnetar.wire.pulsar.linked import HEAD, next_entry
from magnetar.wire.stored import PULSAR_MAGIC, copied_from, split_entry

_prefixes: Final = EntryPrefix()


class CopiedEntry(NamedTuple):
    """An entry that comes from another cluster, and its position there."""

    position: Position
    view: EntryView


class _Stored(NamedTuple):
    """An entry of a copy: its half-open range of offsets, and its position in the other cluster."""

    start: int
    end: int
    position: Position


def split(data: memoryview) -> Iterator[CopiedEntry]:
    """The entries of a request (`wire/pulsar/linked.py`).

    Raises:
        InvalidRecord: they do not ascend, or the request does not end with the last of them; or one is no entry that
            a link sends.
        CorruptMessage: one fails its checksum.
    """
    at = 0
    before = Position(-1, -1)
    while at < len(data):
        try:
            ledger_id, entry_id, entry = next_entry(data, at)
        except WireError as error:
            raise InvalidRecord(str(error)) from error
        at += HEAD.size + len(entry)
        position = Position(ledger_id, entry_id)
        if ledger_id < 0 or entry_id < 0 or position <= before:
            raise InvalidRecord(f"the position {position} does not follow the one before it")
        before = position
        yield CopiedEntry(position, _checked(entry, position))


def _checked(data: memoryview, position: Position) -> EntryView:
    where = f"the entry {position}"
    if bytes(data[:2]) != PULSAR_MAGIC:
        raise InvalidRecord(f"{where} has no checksum in front")
    try:
        # A request's bytes are not kept as long as an entry's are.
        view = read_entry(memoryview(bytes(data)), verify=True)
    except ChecksumMismatch as error:
        raise CorruptMessage(f"{where} fails its checksum") from error
    except WireError as error:
        raise InvalidRecord(f"{where} is none: {error}") from error
    if view.is_marker or view.transaction is not None:
        raise InvalidRecord(f"{where} is a marker, or names a transaction: a link sends none")
    return view


def append(partition: Partition, one: CopiedEntry, now_ms: int, done: Done) -> None:
    """Append an entry behind the log's last one; `done` is called when it is durable or has failed.

    Its time for look-ups and retention is the newest that its producer gave it, but at most as far ahead of `now_ms`
    as the topic's settings allow.

    Raises:
        StorageError: nothing can be written now.
    """
    view, log = one.view, partition.log
    base = log.next_offset
    last = base + view.num_messages - 1
    latest_ms = now_ms + partition.topic.config.timestamp_after_max_ms
    newest_ms = min(max(view.publish_time_ms, view.event_time_ms), latest_ms, LONG_MAX)
    prefix = _prefixes.copied(now_ms, last, view.num_messages, *one.position)
    size = len(prefix) + len(view.data)
    entry = Entry(base, last, newest_ms, view.data, EntryKind.PULSAR)
    log.append(entry, (prefix, view.data), size, done)
    partition.bytes_since_snapshot += size
    if partition.deduplication is not None:
        partition.deduplication.add(view, last, log.high_watermark, now_ms)


async def last_position(log: ReadableLog) -> Position | None:
    """The position, in the other cluster, of the log's last entry; None if the log never had one.

    Raises:
        OffsetsDiffer: its last entries are deleted, or are no copies, so the log does not say how far the copy is.
        StorageError, EntryCorrupt: the log cannot be read there.
    """
    end = log.high_watermark
    if end == 0:
        return None
    last = await _stored_at(log, end - 1) if log.ledgers_between(end - 1, end) else None
    if last is None or last.end != end:
        raise OffsetsDiffer(
            f"{log.name} has lost its last message, which says where its copy ends: delete the topic"
        )
    return last.position


async def offset_behind(log: ReadableLog, wanted: Position, known: dict[int, "_Stored | None"]) -> int:
    """The first readable offset of the copy whose message is behind a position in the other cluster: its end, if it
    has copied none yet.

    `known` holds what was read for other positions of the same log, and gets what is read for this one.

    Raises:
        OffsetsDiffer: an entry on the way is no copy.
        StorageError, EntryCorrupt: the log cannot be read there.
    """
    low, high = log.log_start, log.high_watermark
    while low < high:
        middle = (low + high) // 2
        if middle not in known:
            known[middle] = await _stored_at(log, middle)
        found = known[middle]
        if found is None:
            raise OffsetsDiffer(f"an entry of {log.name} is no copy of another cluster's")
        if found.position <= wanted:
            low = found.end
        else:
            high = min(found.start, middle)
    return max(low, log.log_start)


async def _stored_at(log: ReadableLog, offset: int) -> _Stored | None:
    """The entry that holds `offset`, or the next one; None if that is no copy, or is not there."""
    _, stored = await log.read_stored(offset, 1, 1)
    if not stored:
        return None
    body, last_offset = stored[0].body, stored[0].last_offset
    position = copied_from(body)
    if position is None:
        return None
    _, _, base = split_entry(body, last_offset)
    return _Stored(base, last_offset + 1, Position(*position))
