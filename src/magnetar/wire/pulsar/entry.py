"""Pulsar entries: what one SEND carries and one MESSAGE delivers, as views over the bytes that came.

    0e 02  u32 size  BrokerEntryMetadata      only in front of what the broker stored
    0e 01  u32 crc32c                         of everything behind it; clients older than protocol v6 leave it out
    u32    size of the MessageMetadata
    ...    MessageMetadata
    ...    payload                            compressed and encrypted as a whole

`num_messages_in_batch` in the metadata says that the payload is a batch: so many times
`u32 size, SingleMessageMetadata, payload of payload_size`.

Nothing here changes an entry, only `of_transaction` copies one, and no payload is decompressed.  Texts in
metadata that are not UTF-8 come out as `bytes` (protobuf's Python runtime does that); only the producer's name
is held to be text.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from magnetar.base.errors import WireError
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)

CHECKSUM_MAGIC: Final = b"\x0e\x01"
BROKER_MAGIC: Final = b"\x0e\x02"
SUMMED_FROM: Final = len(CHECKSUM_MAGIC) + 4  # where the bytes begin that the checksum covers
# A batch of more could not even be acknowledged one by one: its ack set alone would have 128 KiB.
BATCH_MESSAGES_MAX: Final = 1 << 20
MESSAGE_BYTES_MIN: Final = (
    6  # in a batch: its size, and a SingleMessageMetadata with a payload_size of one digit
)

_U32: Final = Struct(">I")
_NOT_COMPRESSED: Final = CompressionType.NONE  # the enumeration looks each name up


class ChecksumMismatch(WireError):
    """The entry's bytes are not those that its sender took the checksum of."""


class EntryView:
    """One entry, its metadata decoded.  Times are milliseconds since the epoch, 0 where there is none.

    data                 the whole entry, from the checksum's magic on
    metadata             MessageMetadata
    payload              what is behind the metadata, as it came
    num_messages         1 unless it is a batch; a chunk counts as one message
    highest_sequence_id  of the batch's last message; sequence_id itself where none was given
    """

    __slots__ = (
        "data",
        "event_time_ms",
        "highest_sequence_id",
        "is_batch",
        "metadata",
        "num_messages",
        "payload",
        "producer_name",
        "publish_time_ms",
        "sequence_id",
    )

    def __init__(self, data: memoryview, metadata: MessageMetadata, payload: memoryview) -> None:
        self.data = data
        self.metadata = metadata
        self.payload = payload
        self.producer_name = metadata.producer_name
        self.sequence_id = metadata.sequence_id
        # Absent, zero, or of an older client: the batch is known by its first message alone.
        self.highest_sequence_id = max(metadata.highest_sequence_id, self.sequence_id)
        self.publish_time_ms = metadata.publish_time
        self.event_time_ms = metadata.event_time
        self.is_batch = metadata.HasField("num_messages_in_batch")
        self.num_messages = metadata.num_messages_in_batch if self.is_batch else 1

    @property
    def is_chunk(self) -> bool:
        """Whether this is one part of a message that was too large for one entry."""
        return self.metadata.HasField("uuid") and self.metadata.num_chunks_from_msg > 1

    @property
    def is_marker(self) -> bool:
        """Whether this is a broker's own note in the log, which no consumer ever sees."""
        return self.metadata.HasField("marker_type")

    @property
    def transaction(self) -> tuple[int, int] | None:
        """The id of the transaction that it is part of, most significant bits first; None for none."""
        metadata = self.metadata
        if metadata.HasField("txnid_least_bits") or metadata.HasField("txnid_most_bits"):
            return metadata.txnid_most_bits, metadata.txnid_least_bits
        return None

    @property
    def is_encrypted(self) -> bool:
        return bool(self.metadata.encryption_keys)

    @property
    def deliver_at_ms(self) -> int | None:
        """When the message wants to be delivered, None for at once."""
        return self.metadata.deliver_at_time if self.metadata.HasField("deliver_at_time") else None


def checksum_in(data: memoryview) -> int:
    """The checksum that an entry with one begins with."""
    return int(_U32.unpack_from(data, len(CHECKSUM_MAGIC))[0])


def read_entry(data: memoryview, *, verify: bool) -> EntryView:
    """Decode an entry's metadata.  `verify`: compare its checksum, too, if it has one.

    Raises:
        ChecksumMismatch: the bytes were damaged on the way.
        WireError: this is no entry, or one that contradicts itself.
    """
    at = 0
    if bytes(data[:2]) == CHECKSUM_MAGIC:
        at = SUMMED_FROM
        if len(data) < SUMMED_FROM:
            raise WireError("an entry that ends in its checksum")
        if verify and crc32c(data[SUMMED_FROM:]) != checksum_in(data):
            raise ChecksumMismatch("the entry's checksum does not match its bytes")
    if len(data) < at + 4:
        raise WireError("an entry too short for its metadata's size")
    payload_at = at + 4 + _U32.unpack_from(data, at)[0]
    if payload_at > len(data):
        raise WireError("an entry that ends in its metadata")
    try:
        metadata = MessageMetadata.FromString(data[at + 4 : payload_at])  # type: ignore[arg-type]
    except DecodeError as error:
        raise WireError(f"an entry with malformed metadata: {error}") from error
    if not metadata.IsInitialized():
        raise WireError("an entry without a producer's name, sequence id or publish time")
    view = EntryView(data, metadata, data[payload_at:])
    if not isinstance(view.producer_name, str):
        raise WireError("a producer's name that is not UTF-8")
    if view.is_batch:
        _check_count(view)
    return view


def _check_count(view: EntryView) -> None:
    """Each message takes an offset and a bit: a count that the bytes cannot hold must not get any."""
    count = view.num_messages
    plain = view.metadata.compression == _NOT_COMPRESSED and not view.is_encrypted
    room = len(view.payload) if plain else view.metadata.uncompressed_size or len(view.payload)
    if not 1 <= count <= BATCH_MESSAGES_MAX or count * MESSAGE_BYTES_MIN > room:
        raise WireError(f"a batch of {count} messages in {room} bytes")


def split_broker_metadata(stored: memoryview) -> tuple[BrokerEntryMetadata | None, memoryview]:
    """What the broker put in front of an entry (None: nothing), and the entry as it came from its producer.

    Raises:
        WireError: the block is malformed.
    """
    if bytes(stored[:2]) != BROKER_MAGIC:
        return None, stored
    if len(stored) < 6:
        raise WireError("an entry that ends in the broker's metadata")
    end = 6 + _U32.unpack_from(stored, 2)[0]
    if end > len(stored):
        raise WireError("an entry that ends in the broker's metadata")
    try:
        return BrokerEntryMetadata.FromString(stored[6:end]), stored[end:]  # type: ignore[arg-type]
    except DecodeError as error:
        raise WireError(f"an entry with malformed broker metadata: {error}") from error


def broker_metadata(broker_timestamp_ms: int, index: int) -> bytes:
    """The block that goes in front of a stored entry; `index` is the offset of its last message."""
    body = BrokerEntryMetadata(broker_timestamp=broker_timestamp_ms, index=index).SerializeToString()
    return BROKER_MAGIC + _U32.pack(len(body)) + body


def frame_entry(metadata: MessageMetadata, payload: bytes | memoryview) -> bytes:
    """An entry with its checksum, as a client sends it."""
    body = metadata.SerializeToString()
    covered = b"".join((_U32.pack(len(body)), body, payload))
    return CHECKSUM_MAGIC + _U32.pack(crc32c(covered)) + covered


def of_transaction(view: EntryView, transaction: tuple[int, int]) -> EntryView:
    """A copy of an entry that says in its metadata that it is part of a transaction; all else in it is as it came."""
    most, least = transaction
    said = MessageMetadata(txnid_most_bits=most, txnid_least_bits=least).SerializePartialToString()
    start = (SUMMED_FROM if bytes(view.data[:2]) == CHECKSUM_MAGIC else 0) + 4
    metadata = bytes(view.data[start : len(view.data) - len(view.payload)]) + said
    covered = b"".join((_U32.pack(len(metadata)), metadata, view.payload))
    data = CHECKSUM_MAGIC + _U32.pack(crc32c(covered)) + covered
    return read_entry(memoryview(data), verify=False)


class BatchedMessage(NamedTuple):
    """One message of a batch; `payload` is a view into it."""

    metadata: SingleMessageMetadata
    payload: memoryview


def read_batch(payload: memoryview, count: int) -> Iterator[BatchedMessage]:
    """The messages of a batch, from its uncompressed, unencrypted payload.

    Raises:
        WireError: the payload does not hold exactly `count` messages.
    """
    at = 0
    for _ in range(count):
        if len(payload) < at + 4:
            raise WireError(f"a batch that ends before its {count} messages")
        body_at = at + 4 + _U32.unpack_from(payload, at)[0]
        if body_at > len(payload):
            raise WireError("a batch that ends in a message's metadata")
        try:
            metadata = SingleMessageMetadata.FromString(payload[at + 4 : body_at])  # type: ignore[arg-type]
        except DecodeError as error:
            raise WireError(f"a batch with malformed metadata: {error}") from error
        if not metadata.HasField("payload_size"):
            raise WireError("a message of a batch without a payload_size")
        at = body_at + max(metadata.payload_size, 0)
        if at > len(payload):
            raise WireError("a batch that ends in a message")
        yield BatchedMessage(metadata, payload[body_at:at])
    if at != len(payload):
        raise WireError(f"{len(payload) - at} bytes behind the last message of a batch")
