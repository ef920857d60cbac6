"""Batches and messages with keys, and what is in them."""

from collections.abc import Sequence

from crc32c import crc32c

from magnetar.ledger.entry import Entry, EntryKind
from magnetar.wire.convert import plain
from magnetar.wire.convert.batches import pulsar_to_kafka
from magnetar.wire.convert.codecs import compress_for_kafka, compress_for_pulsar
from magnetar.wire.kafka.record_reader import Record, read_records
from magnetar.wire.kafka.records import (
    CRC_COVER,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    TRANSACTIONAL,
    read_header,
)
from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

Pair = tuple[bytes | None, bytes | None]


def kafka_batch(
    pairs: Sequence[Pair],
    times_ms: Sequence[int],
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
) -> memoryview:
    """One record for each pair of key and value; `producer` is (id, epoch, base sequence)."""
    base_ms = times_ms[0]
    records = b"".join(
        b"".join(plain.record(time_ms - base_ms, delta, key, value, [(b"h", b"1")] if delta % 2 else []))
        for delta, ((key, value), time_ms) in enumerate(zip(pairs, times_ms, strict=True))
    )
    body = compress_for_kafka(memoryview(records), codec)
    batch = bytearray(HEADER_SIZE + len(body))
    batch[HEADER_SIZE:] = body
    attributes = codec | (TRANSACTIONAL if is_transactional else 0)
    fields = (0, len(batch) - LENGTH_PREFIX, -1, 2)
    rest = (attributes, len(pairs) - 1, base_ms, max(times_ms), *producer, len(pairs))
    HEADER.pack_into(batch, 0, *fields, 0, *rest)
    HEADER.pack_into(batch, 0, *fields, crc32c(memoryview(batch)[CRC_COVER:]), *rest)
    return memoryview(batch)


def pulsar_entry(
    pairs: Sequence[Pair],
    time_ms: int,
    *,
    codec: int = CompressionType.NONE,
    is_batch: bool = True,
    transaction: int | None = None,
) -> EntryView:
    """A batch of one message for each pair, or the message of the only pair; a value of None is a null value."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=time_ms)
    if transaction is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = 0, transaction
    if is_batch:
        metadata.num_messages_in_batch = len(pairs)
        parts = []
        for key, value in pairs:
            one = SingleMessageMetadata(payload_size=len(value or b""))
            _describe(one, key, value)
            described = one.SerializeToString()
            parts += [len(described).to_bytes(4), described, value or b""]
        payload = b"".join(parts)
    else:
        ((key, value),) = pairs
        _describe(metadata, key, value)
        payload = value or b""
    if codec != CompressionType.NONE:
        metadata.compression = codec  # type: ignore[assignment]
        metadata.uncompressed_size = len(payload)
    framed = frame_entry(metadata, compress_for_pulsar(memoryview(payload), codec))
    return read_entry(memoryview(framed), verify=True)


def _describe(
    metadata: MessageMetadata | SingleMessageMetadata, key: bytes | None, value: bytes | None
) -> None:
    if key is not None:
        metadata.partition_key = key.decode()
    if value is None:
        metadata.null_value = True


def records_of(entry: Entry) -> list[Record]:
    """What a Kafka consumer sees in an entry, those of aborted transactions included; checksums hold."""
    batch = entry.payload
    if entry.kind is EntryKind.PULSAR:
        batch = pulsar_to_kafka(read_entry(entry.payload, verify=True), entry.base_offset, 0)
    header = read_header(batch)
    assert header.crc == crc32c(batch[CRC_COVER:])
    assert (header.base_offset, header.last_offset) == (entry.base_offset, entry.last_offset)
    return [] if header.is_control else list(read_records(batch, header))
