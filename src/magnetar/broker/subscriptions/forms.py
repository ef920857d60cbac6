"""Log entries as Pulsar consumers get them, and as the dispatchers count them.

An entry that a Pulsar client published goes out as it came.  What consumers never see (markers, control batches,
batches of aborted transactions, entries that cannot be decoded) has no payload here: subscriptions acknowledge it by
themselves, and count it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, cast

from magnetar.broker.interop.model import Buffer, Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range, ack_set_of, intersection, positions_in
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.sharing import entry_slot, part_entry_id, split_by_key
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType

# Messages of Kafka batches that are cut by key on the event loop: a millisecond's work.
CUT_AT_ONCE_MAX: Final = 200
_CUT_AT_ONCE_BYTES_MAX: Final = 256 << 10  # ... and their bytes behind compression
CUT_BYTES_MAX: Final = 16 << 20
"""What is larger behind its compression is not cut by key: it goes to one consumer as a whole."""

Forms = Callable[[Partition, Sequence[Entry]], "Sequence[Formed] | Awaitable[Sequence[Formed]]"]


class EntryPart(NamedTuple):
    """What a unit's `entry` is when it stands for a part of an entry: the part's own id, and its offsets."""

    ledger_id: int
    entry_id: int
    ranges: tuple[Range, ...]


def position_of(unit: Unit) -> tuple[int, int]:
    """(ledger id, entry id) under which the unit goes out."""
    ledger_id, entry_id, *_ = cast(tuple[int, int], unit.entry)
    return ledger_id, entry_id


def part_ranges(unit: Unit) -> tuple[Range, ...] | None:
    """The offsets of the part that a unit stands for; None for a whole entry."""
    return unit.entry.ranges if isinstance(unit.entry, EntryPart) else None


def make_units(
    formed: Sequence[Formed], cursor: Cursor, kind: SubscriptionType
) -> tuple[list[Unit], list[Range]]:
    """What to offer to a dispatcher of this `kind`, and the offsets of entries that no consumer is to see.

    Entries that `cursor` has acknowledged are left out; of one that it has in part, the unit has the rest, whether
    that is all that its consumer will be shown of it or not.
    """
    units: list[Unit] = []
    unseen: list[Range] = []
    is_shared = kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
    for entry, payload, parts in formed:
        base, end = entry.base_offset, entry.last_offset + 1
        if payload is None:
            unseen.append((base, end))
            continue
        left = None
        if base < cursor.mark_delete or cursor.has_holes:
            left = cursor.unacknowledged(base, end)
            if not left:
                continue
            if left == [(base, end)]:
                left = None
        ledger_id, entry_id = int(entry.ledger_id), int(entry.entry_id)
        if parts is not None and len(parts) > 1:
            for number, part in enumerate(parts):
                ranges = tuple([(base + start, base + stop) for start, stop in part.ranges])
                offsets = ranges if left is None else intersection(ranges, left)
                if offsets:
                    handle = EntryPart(ledger_id, part_entry_id(entry_id, number), ranges)
                    count = sum([stop - start for start, stop in ranges])
                    unit = Unit(handle, base, end, payload=part.payload, offsets=offsets, permits=count)
                    unit.slot = part.slot
                    units.append(unit)
            continue
        unit = Unit(
            (ledger_id, entry_id), base, end, payload=payload, offsets=None if left is None else tuple(left)
        )
        if parts:
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


def cut_by_key(
    formed: "Sequence[Formed] | Awaitable[Sequence[Formed]]", entries: Sequence[Entry]
) -> "Sequence[Formed] | Awaitable[Sequence[Formed]]":
    """The same, Kafka batches among `entries` cut into parts (see `sharing.py`): what is much of it on a thread.

    Of entries that are cut on a thread these are the first ones, as many as make `CUT_BYTES_MAX` bytes of parts.
    """
    if isinstance(formed, Awaitable):
        return _cut_later(formed)
    messages = sum([one.message_count for one in entries if one.kind is EntryKind.KAFKA])
    if messages <= CUT_AT_ONCE_MAX and sum(map(_bytes_to_cut, formed)) <= _CUT_AT_ONCE_BYTES_MAX:
        return _cut(formed)
    return asyncio.to_thread(_cut, formed)


async def _cut_later(formed: Awaitable[Sequence[Formed]]) -> Sequence[Formed]:
    return await asyncio.to_thread(_cut, await formed)


def _bytes_to_cut(one: Formed) -> int:
    """Of a Kafka batch, what its messages take behind their compression."""
    if one.payload is None or one.entry.kind is not EntryKind.KAFKA:
        return 0
    return _uncompressed(read_entry(memoryview(one.payload), verify=False))


def _uncompressed(view: EntryView) -> int:
    """What the payload is without its compression; the broker made it, so what it says of itself is so."""
    if view.metadata.compression == CompressionType.NONE:
        return len(view.payload)
    return view.metadata.uncompressed_size


def _cut(formed: Sequence[Formed]) -> Sequence[Formed]:
    found: list[Formed] = []
    left = CUT_BYTES_MAX
    for one in formed:
        if one.payload is not None and one.entry.kind is EntryKind.KAFKA:
            view = read_entry(memoryview(one.payload), verify=False)
            size = _uncompressed(view)
            if size <= CUT_BYTES_MAX:
                left -= size
                if left < 0:
                    break  # not the first one
                one = Formed(one.entry, one.payload, split_by_key(view))
        found.append(one)
    return found


def payload_of(unit: Unit, formed: Formed) -> Buffer | None:
    """The bytes of a unit, given its entry."""
    ranges = part_ranges(unit)
    if ranges is None or formed.parts is None:
        return formed.payload
    base = unit.base_offset
    indexes = tuple([(start - base, end - base) for start, end in ranges])
    return next((part.payload for part in formed.parts if part.ranges == indexes), None)


def ack_set_left(unit: Unit) -> Sequence[int]:
    """What is left of a unit that was acknowledged in part."""
    offsets, part = unit.offsets, part_ranges(unit)
    assert offsets is not None
    if part is None:
        return ack_set_of(offsets, unit.base_offset, unit.end_offset - unit.base_offset)
    if offsets == part:
        return ()
    return ack_set_of(positions_in(offsets, part), 0, sum([end - start for start, end in part]))
