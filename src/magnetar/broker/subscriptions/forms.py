"""Log entries as Pulsar consumers get them, and as the dispatchers count them.

An entry that a Pulsar client published goes out as it came.  What consumers never see (markers, control batches,
batches of aborted transactions, entries that cannot be decoded) has no payload here: subscriptions acknowledge it by
themselves, and count it.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, cast

from magnetar.broker.partition import Partition
from magnetar.broker.subscriptions.dispatch.hashing import slot_of
from magnetar.broker.subscriptions.dispatch.model import SubscriptionType, Unit
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.pulsar.entry import CHECKSUM_MAGIC, EntryView, read_entry

Buffer = bytes | bytearray | memoryview

_MARKER_TAG: Final = b"\xa0\x01"  # of MessageMetadata.marker_type


class Formed(NamedTuple):
    """One entry in Pulsar's form; `payload` is None when no consumer is to see it."""

    entry: Entry
    payload: Buffer | None


Forms = Callable[[Partition, Sequence[Entry]], "Sequence[Formed] | Awaitable[Sequence[Formed]]"]


def pulsar_only(partition: Partition, entries: Sequence[Entry]) -> Sequence[Formed]:
    """Entries of Pulsar clients as they are; others are not seen."""
    return [
        Formed(
            entry, entry.payload if entry.kind is EntryKind.PULSAR and not is_marker(entry.payload) else None
        )
        for entry in entries
    ]


def is_marker(payload: Buffer) -> bool:
    """Whether a Pulsar entry is a broker's own note.  Raises WireError for one that is malformed."""
    view = memoryview(payload)
    metadata_at = 10 if bytes(view[:2]) == CHECKSUM_MAGIC else 4
    metadata_end = metadata_at + int.from_bytes(view[metadata_at - 4 : metadata_at], "big")
    # Hardly any entry has these two bytes anywhere, and looking for them is far cheaper than decoding.
    return _MARKER_TAG in bytes(view[metadata_at:metadata_end]) and read_entry(view, verify=False).is_marker


def make_units(
    formed: Sequence[Formed], cursor: Cursor, kind: SubscriptionType, *, hides_acknowledged: bool
) -> tuple[list[Unit], list[tuple[int, int]]]:
    """What to offer to a dispatcher of this `kind`, and the offsets of entries that nobody is to see.

    Entries that `cursor` has acknowledged are left out.  Of one that it has in part, the rest is delivered with an
    ack set; without `hides_acknowledged` the whole entry is, because clients that do not acknowledge batches message
    by message never acknowledge an entry of which they were shown a part.
    """
    units: list[Unit] = []
    unseen: list[tuple[int, int]] = []
    is_shared = kind in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)
    for entry, payload in formed:
        base, end = entry.base_offset, entry.last_offset + 1
        if payload is None:
            unseen.append((base, end))
            continue
        offsets = None
        if base < cursor.mark_delete or cursor.has_holes:
            left = cursor.unacknowledged(base, end)
            if not left:
                continue
            if hides_acknowledged and left != [(base, end)]:
                offsets = tuple(left)
        position = (int(entry.ledger_id), int(entry.entry_id))
        unit = Unit(position, base, end, payload=payload, offsets=offsets)
        if is_shared:
            describe(unit, read_entry(memoryview(payload), verify=False), kind)
        units.append(unit)
    return units, unseen


def position_of(unit: Unit) -> tuple[int, int]:
    """(ledger id, entry id) of the unit's entry."""
    return cast(tuple[int, int], unit.entry)


def describe(unit: Unit, view: EntryView, kind: SubscriptionType) -> None:
    """Note on the unit what dispatchers of several consumers go by."""
    unit.deliver_at_ms = view.deliver_at_ms or 0
    if view.is_chunk:
        unit.chunk_id = view.metadata.uuid
    if kind is SubscriptionType.KEY_SHARED:
        unit.slot = slot_of(key_of(view))


def key_of(view: EntryView) -> bytes:
    """The key by which Key_Shared consumers share an entry: a batch goes by that of its entry."""
    metadata = view.metadata
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if not metadata.HasField("partition_key"):
        return f"{view.producer_name}-{view.sequence_id}".encode()
    key = metadata.partition_key
    raw = key.encode() if isinstance(key, str) else key  # bytes: what is not UTF-8
    if metadata.partition_key_b64_encoded:
        try:
            return b64decode(raw, validate=True)
        except ValueError:
            return raw
    return raw
