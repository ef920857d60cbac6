"""Log entries as Pulsar consumers get them, and as the dispatchers count them.

An entry that a Pulsar client published goes out as it came.  What consumers never see (markers, control batches,
batches of aborted transactions, entries that cannot be decoded) has no payload here: subscriptions acknowledge it by
themselves, and count it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.broker.interop.model import NO_SLOT, Buffer, Formed, Part
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range, ack_set_of, intersection, positions_in
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.sharing import (
    entry_slot,
    is_rest,
    of_entry_id,
    part_entry_id,
    rest_entry_id,
    rest_of,
    split_by_key,
    without_compacted,
)
from magnetar.ledger.compacted_view import LogView
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.kafka.records import read_header
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType

# Messages of Kafka batches that are cut by key on the event loop: a millisecond's work.
CUT_AT_ONCE_MAX: Final = 200
_CUT_AT_ONCE_BYTES_MAX: Final = 256 << 10  # ... and their bytes behind compression
CUT_BYTES_MAX: Final = 16 << 20
"""What is larger behind its compression is not cut by key: it goes to one consumer as a whole."""

BARE: Final = b""
"""The payload of an entry whose consumers read it by themselves."""

Forms = Callable[[Partition, Sequence[Entry]], "Sequence[Formed] | Awaitable[Sequence[Formed]]"]


class EntryPart(NamedTuple):
    """What a unit's `entry` is when it stands for a part of an entry: the part's own id, and its offsets.

    A part that is all that is left of its entry has the entry's id.
    """

    ledger_id: int
    entry_id: int
    ranges: tuple[Range, ...]


def position_of(unit: Unit) -> tuple[int, int]:
    """(ledger id, entry id) under which the unit goes out."""
    entry: Any = unit.entry
    return entry[0], entry[1]


def part_ranges(unit: Unit) -> tuple[Range, ...] | None:
    """The offsets of the part that a unit stands for; None for a whole entry."""
    return unit.entry.ranges if isinstance(unit.entry, EntryPart) else None


def show_rest(units: Iterable[Unit]) -> None:
    """Let units of which some messages are left go out with just those, each under an id of its own."""
    for unit in units:
        if unit.offsets is not None:
            ledger_id, entry_id = position_of(unit)
            own_id = rest_entry_id(of_entry_id(entry_id)[0], unit.offsets[0][0] - unit.base_offset)
            rest = EntryPart(ledger_id, own_id, tuple(unit.offsets))
            if rest != unit.entry:
                unit.entry = rest
                # It was read before others acknowledged some, or with what they had acknowledged before a restart.
                unit.payload = None


def make_units(
    formed: Sequence[Formed], cursor: Cursor, kind: SubscriptionType, *, shows_rest: bool = False
) -> tuple[list[Unit], list[Range]]:
    """What to offer to a dispatcher of this `kind`, and the offsets of entries that no consumer is to see.

    Entries that `cursor` has acknowledged are left out.  If it has acknowledged a part of an entry, the unit has the
    rest, whether or not its consumer will see only this rest (`shows_rest`).
    """
    units: list[Unit] = []
    unseen: list[Range] = []
    is_shared = kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
    mark_delete, has_holes = cursor.mark_delete, cursor.has_holes
    for entry, payload, parts in formed:
        base, end = entry.base_offset, entry.last_offset + 1
        if payload is None:
            unseen.append((base, end))
            continue
        left = None
        if base < mark_delete or has_holes:
            left = cursor.unacknowledged(base, end)
            if not left:
                continue
            if left == [(base, end)]:
                left = None
        ledger_id, entry_id = int(entry.ledger_id), int(entry.entry_id)
        if parts is not None and not _is_whole(parts, end - base):
            unseen += _without_parts(parts, base, end)
            for part in parts:
                ranges = tuple([(base + start, base + stop) for start, stop in part.ranges])
                offsets = ranges if left is None else intersection(ranges, left)
                if not offsets:
                    continue
                own_id = part_entry_id(entry_id, part.ranges[0][0]) if len(parts) > 1 else entry_id
                count = sum([stop - start for start, stop in ranges])
                handle = EntryPart(ledger_id, own_id, ranges)
                unit = Unit(handle, base, end, payload=part.payload, offsets=offsets, permits=count)
                if part.slot != NO_SLOT:
                    unit.slot = part.slot
                elif is_shared:
                    describe(unit, read_entry(memoryview(part.payload), verify=False), kind)
                units.append(unit)
            continue
        unit = Unit(
            (ledger_id, entry_id), base, end, payload=payload, offsets=None if left is None else tuple(left)
        )
        if shows_rest:
            unit.permits = unit.message_count
        if payload is BARE:
            unit.payload = None
        elif parts:
            unit.slot = parts[0].slot  # one slot has all of it
        elif is_shared:
            describe(unit, read_entry(memoryview(payload), verify=False), kind)
        units.append(unit)
    return units, unseen


def describe(unit: Unit, view: EntryView, kind: SubscriptionType) -> None:
    """Note on the unit what dispatchers of several consumers go by."""
    unit.deliver_at_ms = view.deliver_at_ms or 0
    if view.is_chunk:
        unit.chunk_id = view.metadata.uuid
    if kind is SubscriptionType.KEY_SHARED:
        unit.slot = entry_slot(view)


class Cutting(NamedTuple):
    """What is cut.

    by_key         Kafka's batches, for Key_Shared consumers
    cleaned_below  batches below this offset, of which compaction may have left some messages.  Not for readers: those
                   do not acknowledge, and go on by the index that a message had in its batch
    """

    by_key: bool
    cleaned_below: int = 0

    def concerns(self, entry: Entry) -> bool:
        if self.by_key and entry.kind is EntryKind.KAFKA:
            return True
        if entry.last_offset >= self.cleaned_below:
            return False
        if entry.kind is EntryKind.KAFKA:
            return read_header(entry.payload).record_count < entry.message_count
        return entry.message_count > 1


class EntryChanged(Exception):
    """Compaction has taken something out of an entry since a unit of it was made."""


def cut(
    formed: "Sequence[Formed] | Awaitable[Sequence[Formed]]", entries: Sequence[Entry], cutting: Cutting
) -> "Sequence[Formed] | Awaitable[Sequence[Formed]]":
    """The same, batches among `entries` cut into parts (see `sharing.py`): what is much of it on a thread.

    Of entries that are cut on a thread these are the first ones, as many as make `CUT_BYTES_MAX` bytes of parts.
    """
    if not cutting.by_key and (not entries or entries[0].last_offset >= cutting.cleaned_below):
        return formed  # nothing of most logs is concerned: one look, not one for each entry
    concerned = [one for one in entries if cutting.concerns(one)]
    if not concerned:
        return formed
    if isinstance(formed, Awaitable):
        return _cut_later(formed, cutting)
    messages = sum([one.message_count for one in concerned])
    sizes = [_bytes_to_cut(one) for one in formed if cutting.concerns(one.entry)]
    if messages <= CUT_AT_ONCE_MAX and sum(sizes) <= _CUT_AT_ONCE_BYTES_MAX:
        return _cut(formed, cutting)
    return asyncio.to_thread(_cut, formed, cutting)


async def _cut_later(formed: Awaitable[Sequence[Formed]], cutting: Cutting) -> Sequence[Formed]:
    return await asyncio.to_thread(_cut, await formed, cutting)


def _bytes_to_cut(one: Formed) -> int:
    """Of a batch, what its messages take behind their compression."""
    if one.payload is None:
        return 0
    return _uncompressed(read_entry(memoryview(one.payload), verify=False))


def _uncompressed(view: EntryView) -> int:
    """What the payload says that it is without its compression: where a client has said it, expanding holds it to
    that."""
    if view.metadata.compression == CompressionType.NONE:
        return len(view.payload)
    return view.metadata.uncompressed_size


def _cut(formed: Sequence[Formed], cutting: Cutting) -> Sequence[Formed]:
    found: list[Formed] = []
    left = CUT_BYTES_MAX
    for one in formed:
        if one.payload is not None and cutting.concerns(one.entry):
            view = read_entry(memoryview(one.payload), verify=False)
            size = _uncompressed(view)
            if size <= CUT_BYTES_MAX:
                left -= size
                if left < 0:
                    break  # not the first one
                one = _in_parts(one, view, cutting)
        found.append(one)
    return found


def _in_parts(one: Formed, view: EntryView, cutting: Cutting) -> Formed:
    if cutting.by_key and one.entry.kind is EntryKind.KAFKA:
        return Formed(one.entry, one.payload, split_by_key(view))
    if not view.is_batch or view.is_encrypted:
        return one
    try:
        part = without_compacted(view)
    except WireError:
        return one  # it is its consumer's
    return one if part is None else Formed(one.entry, one.payload, [part])


def _is_whole(parts: Sequence[Part], count: int) -> bool:
    return len(parts) == 1 and parts[0].ranges == ((0, count),)


def _without_parts(parts: Sequence[Part], base: int, end: int) -> list[Range]:
    """The offsets of an entry that are in none of its parts."""
    found: list[Range] = []
    at = base
    for start, stop in sorted([limits for part in parts for limits in part.ranges]):
        if base + start > at:
            found.append((at, base + start))
        at = base + stop
    return [*found, (at, end)] if at < end else found


def payload_of(unit: Unit, formed: Formed) -> Buffer | None:
    """The bytes of a unit, given its entry as it is now; None when no consumer is to see it any more.

    Raises:
        EntryChanged: the entry has not all that the unit stands for.
    """
    ranges, parts = part_ranges(unit), formed.parts
    count = unit.end_offset - unit.base_offset
    if formed.payload is None or (ranges is None and (parts is None or _is_whole(parts, count))):
        return formed.payload
    indexes = tuple([(start - unit.base_offset, end - unit.base_offset) for start, end in ranges or ()])
    for part in parts or ():
        if part.ranges == indexes:
            return part.payload
    if is_rest(position_of(unit)[1]):
        view = read_entry(memoryview(formed.payload), verify=False)
        rest = rest_of(view, [index for start, end in indexes for index in range(start, end)])
        return formed.payload if rest is None else rest
    raise EntryChanged(unit)


def payload_at_once(unit: Unit, formed: "Sequence[Formed] | Awaitable[Sequence[Formed]]") -> Buffer | None:
    """As `payload_of`; None for what is not at hand, or has changed."""
    if isinstance(formed, Awaitable):
        if isinstance(formed, Coroutine):
            formed.close()
        return None
    if unit.end_offset - unit.base_offset > CUT_AT_ONCE_MAX and is_rest(position_of(unit)[1]):
        return None
    try:
        return payload_of(unit, formed[0])
    except EntryChanged:
        return None


async def load(partition: Partition, view: LogView, unit: Unit, forms: Forms) -> Buffer | None:
    """The bytes of a unit, read again; None when it is gone.

    Raises:
        EntryChanged: see `payload_of`.
        StorageError, EntryCorrupt: the log cannot be read there.
    """
    entry = await view.entry_at(unit.base_offset)
    if entry is None or entry.base_offset != unit.base_offset:
        return None
    formed = forms(partition, [entry])
    (ready,) = await formed if isinstance(formed, Awaitable) else formed
    if is_rest(position_of(unit)[1]):
        return await asyncio.to_thread(payload_of, unit, ready)
    return payload_of(unit, ready)


def ack_set_left(unit: Unit, offsets: Sequence[Range]) -> Sequence[int]:
    """Of a unit of which these offsets are left: it was acknowledged in part."""
    part = part_ranges(unit)
    if part is None:
        return ack_set_of(offsets, unit.base_offset, unit.end_offset - unit.base_offset)
    if offsets == part:
        return ()
    return ack_set_of(positions_in(offsets, part), 0, sum([end - start for start, end in part]))
