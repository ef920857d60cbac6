"""What stands in front of a Kafka batch inside a ledger entry, so that Pulsar's tools can read the ledger (DESIGN 3).

::

    0e 02                       magic of broker entry metadata (PIP-70)
    u32  size                   of the protobuf that follows
    BrokerEntryMetadata         1: broker_timestamp (ms)   2: index = offset of the entry's last message
    u32  size
    MessageMetadata             1: producer_name ""   2: sequence_id 0   3: publish_time (ms)
                                4: property entry.format=kafka           11: num_messages_in_batch
    ...                         the Kafka record batch, byte for byte

The layout is the one that Kafka-on-Pulsar gave its `kafka` entry format.  Field order is fixed, so telling a Kafka
entry from a Pulsar one is a comparison of bytes at a known place.
"""

from struct import Struct
from typing import Final

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.entry_cache import Entry
from magnetar.storage.store import StoredEntry

_MAGIC: Final = b"\x0e\x02"
_U32: Final = Struct(">I")
_BASE_OFFSET: Final = Struct(">q")
_PRODUCER: Final = b"\x0a\x00\x10\x00\x18"  # producer_name "", sequence_id 0, tag of publish_time
_FORMAT: Final = b"\x22\x15\x0a\x0centry.format\x12\x05kafka"
assert _FORMAT[1] == len(_FORMAT) - 2


def varint(value: int) -> bytes:
    """Protobuf's base-128 encoding of a non-negative integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class KafkaEntryPrefix:
    """Builds prefixes; remembers the encoded clock, which changes once a millisecond at most."""

    __slots__ = ("_broker", "_message", "_now_ms")

    def __init__(self) -> None:
        self._now_ms = -1
        self._broker = b""
        self._message = b""

    def build(self, now_ms: int, last_offset: int, record_count: int) -> bytes:
        """The bytes to put in front of a batch of `record_count` records whose last one gets `last_offset`."""
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            clock = varint(now_ms)
            self._broker = b"\x08" + clock + b"\x10"
            self._message = _PRODUCER + clock + _FORMAT + b"\x58"
        broker = self._broker + varint(last_offset)
        message = self._message + varint(record_count)
        return b"".join((_MAGIC, _U32.pack(len(broker)), broker, _U32.pack(len(message)), message))


def kafka_batch_of(body: memoryview) -> memoryview | None:
    """The Kafka batch inside a stored entry, not copied; None when the entry is not a Kafka one.

    Raises:
        EntryCorrupt: the sizes in front of the payload do not fit the entry.
    """
    if bytes(body[:2]) != _MAGIC:
        return None
    try:
        message_at = 6 + _U32.unpack_from(body, 2)[0]
        payload_at = message_at + 4 + _U32.unpack_from(body, message_at)[0]
    except Exception as error:
        raise EntryCorrupt("an entry is too short for its own metadata") from error
    if payload_at > len(body):
        raise EntryCorrupt("an entry is shorter than its metadata says")
    # publish_time is a varint of 6 bytes until the year 2109
    format_at = message_at + 4 + len(_PRODUCER) + 6
    if bytes(body[format_at : format_at + len(_FORMAT)]) != _FORMAT:
        return None
    return body[payload_at:]


def decode_entry(stored: StoredEntry) -> Entry:
    """A stored entry as readers get it: the payload without its prefix, which is still the memory it was read into.

    Raises:
        EntryCorrupt: the entry is not one that this version can read.
    """
    batch = kafka_batch_of(stored.body)
    if batch is None:
        raise EntryCorrupt(f"entry {stored.entry_id} at offset {stored.last_offset} has an unknown format")
    return Entry(_BASE_OFFSET.unpack_from(batch)[0], stored.last_offset, stored.max_timestamp_ms, batch)
