"""The bytes of a ledger entry, such that Pulsar's tools can read the ledger.

An entry of either protocol begins with Pulsar's broker entry metadata (PIP-70)::

    0e 02                       magic
    u32  size                   of the protobuf that follows, big-endian
    BrokerEntryMetadata         1: broker_timestamp (ms)   2: index = offset of the entry's last message

After it, in an entry of a Kafka client::

    u32  size
    MessageMetadata             1: producer_name ""   2: sequence_id 0   3: publish_time (ms)
                                4: property entry.format=kafka           11: num_messages_in_batch
    ...                         the record batch, byte for byte

This is the layout of Kafka-on-Pulsar's entry format `kafka`.  The order of fields is fixed, so comparing bytes at a
known place is enough to recognize a Kafka entry.

In an entry of a Pulsar client, what the client sent after its SEND command, byte for byte::

    0e 01                       magic
    u32  crc32c                 of everything after it
    u32  size
    MessageMetadata
    ...                         one message, or a batch of them

and its broker entry metadata ends with a field of our own.  Pulsar's readers skip it, as they skip every field that
they do not know::

    7d u32                      15: how many offsets the entry takes, fixed32, little-endian

It gives the first offset without a look at what a client wrote.  MessageMetadata could not: its fields come in any
order, and num_messages_in_batch can come after any number of properties.

An entry that a link has copied from another cluster of Pulsar's (`broker/log/linked_entries.py`) has two fields more
in front of that count: its position there, numbers in little-endian::

    51 i64                      10: ledger id
    59 i64                      11: entry id

An entry that compaction has moved has more fields before that count: `moved_entry.py`.
"""

from struct import Struct
from typing import Final

from magnetar.base.errors import EntryCorrupt, WireError
from magnetar.base.varint import varint
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.wire.stored import (
    COPIED,
    COPIED_TAGS,
    COUNT,
    COUNT_BYTES,
    ENTRY_MAGIC,
    FORMAT,
    MOVED_METADATA_BYTES_MIN,
    PRODUCER,
    origin_of,
    split_entry,
)

_U32: Final = Struct(">I")
_METADATA_SIZE_AT: Final = 5  # the last byte of the size; its other bytes are 0

MESSAGES_MAX: Final = 0xFFFF_FFFF
"""The most messages of one entry: what the count's field can hold."""


class EntryPrefix:
    """Builds prefixes.  It keeps the encoded time, which changes at most once a millisecond."""

    __slots__ = ("_broker", "_message", "_now_ms")

    def __init__(self) -> None:
        self._now_ms = -1
        self._broker = b""
        self._message = b""

    def _set_clock(self, now_ms: int) -> None:
        self._now_ms = now_ms
        clock = varint(now_ms)
        self._broker = b"\x08" + clock + b"\x10"
        self._message = PRODUCER + clock + FORMAT + b"\x58"

    def kafka(self, now_ms: int, last_offset: int, record_count: int) -> bytes:
        """The bytes to put before a batch of `record_count` records, the last of which gets `last_offset`."""
        if now_ms != self._now_ms:
            self._set_clock(now_ms)
        broker = self._broker + varint(last_offset)
        message = self._message + varint(record_count)
        return b"".join((ENTRY_MAGIC, _U32.pack(len(broker)), broker, _U32.pack(len(message)), message))

    def pulsar(self, now_ms: int, last_offset: int, message_count: int, more: bytes = b"") -> bytes:
        """The bytes to put before what a Pulsar client sent: 1 to `MESSAGES_MAX` messages.  `more` are fields that
        stand in front of the count.
        """
        if now_ms != self._now_ms:
            self._set_clock(now_ms)
        broker = self._broker + varint(last_offset) + more
        count = b"\x7d" + COUNT.pack(message_count)
        return b"".join((ENTRY_MAGIC, _U32.pack(len(broker) + COUNT_BYTES), broker, count))

    def copied(
        self, now_ms: int, last_offset: int, message_count: int, ledger_id: int, entry_id: int
    ) -> bytes:
        """As `pulsar`, for an entry that has this position in another cluster."""
        first, second = COPIED_TAGS
        position = COPIED.pack(first, ledger_id, second, entry_id)
        return self.pulsar(now_ms, last_offset, message_count, position)


def decode_entry(ledger_id: LedgerId, stored: StoredEntry) -> Entry:
    """A stored entry as readers get it: its payload is the stored bytes without the prefix, not copied.

    If compaction has moved the entry, its position is the one that it had before.

    Raises:
        EntryCorrupt: this version cannot read the entry.
    """
    body = stored.body
    last_offset = stored.last_offset
    try:
        is_pulsar, payload_at, base_offset = split_entry(body, last_offset)
    except WireError as error:
        raise _corrupt(ledger_id, stored) from error
    entry_id = stored.entry_id
    if body[_METADATA_SIZE_AT] >= MOVED_METADATA_BYTES_MIN and (origin := origin_of(body)) is not None:
        ledger_id, entry_id = LedgerId(origin.ledger_id), EntryId(origin.entry_id)
    return Entry(
        base_offset, last_offset, stored.max_timestamp_ms, body[payload_at:],
        EntryKind.PULSAR if is_pulsar else EntryKind.KAFKA, ledger_id, entry_id,
    )  # fmt: skip


def _corrupt(ledger_id: LedgerId, stored: StoredEntry) -> EntryCorrupt:
    return EntryCorrupt(
        f"entry {stored.entry_id} of ledger {ledger_id}, at offset {stored.last_offset}, is not one that can be read"
    )
