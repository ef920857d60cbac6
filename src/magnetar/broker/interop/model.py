"""An entry in the form for Pulsar's consumers: the conversion returns this value, and subscriptions take it.

An entry that consumers never see (a marker, a control batch, a batch of an aborted transaction, an entry that cannot
be decoded) has no payload.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from magnetar.ledger.entry import Entry
from magnetar.wire.pulsar.entry import CHECKSUM_MAGIC, read_entry

Buffer = bytes | bytearray | memoryview

_MARKER_TAG: Final = b"\xa0\x01"  # of MessageMetadata.marker_type


NO_SLOT: Final = -1


class Part(NamedTuple):
    """Messages of a batch that go out together: their indexes as half-open ranges, and an entry with them.

    `slot` is the hash slot of their keys; `NO_SLOT` if the part is all that compaction has left of the batch.
    """

    slot: int
    ranges: tuple[tuple[int, int], ...]
    payload: bytes


class Formed(NamedTuple):
    """One entry in Pulsar's form; `payload` is None if no consumer sees it.

    `parts` are the pieces of the entry for Key_Shared consumers, or what compaction has left of a batch.
    """

    entry: Entry
    payload: Buffer | None
    parts: Sequence[Part] | None = None


def is_marker(payload: Buffer) -> bool:
    """Whether a Pulsar entry is a broker's marker.  Raises WireError if it is malformed."""
    view = memoryview(payload)
    metadata_at = 10 if bytes(view[:2]) == CHECKSUM_MAGIC else 4
    metadata_end = metadata_at + int.from_bytes(view[metadata_at - 4 : metadata_at], "big")
    # Hardly any entry has these two bytes, and searching for them is far cheaper than decoding.
    return _MARKER_TAG in bytes(view[metadata_at:metadata_end]) and read_entry(view, verify=False).is_marker
