"""A record batch to an entry and an entry to a record batch.

An entry of n messages and its record batch cover the same n offsets; message i is the record with offset delta i.
Some offsets have no record on the other side: of a message that compaction took out, a piece of a chunked message, a
marker.  A batch covers such an offset, and readers continue behind it.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.base.errors import WireError
from magnetar.wire.convert import engine, plain
from magnetar.wire.convert.codecs import (
    KAFKA_LZ4,
    KAFKA_NONE,
    KAFKA_OF,
    KAFKA_ZSTD,
    PULSAR_OF,
    compress_for_kafka,
    compress_for_pulsar,
    expand_pulsar,
)
from magnetar.wire.convert.naming import RawHeader
from magnetar.wire.convert.plain import Records
from magnetar.wire.kafka.record_reader import RECORDS_BYTES_MAX, TooLargeExpanded, expand
from magnetar.wire.kafka.record_scan import WHOLE, Budget
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_COVER,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    LOG_APPEND_TIME,
    MAGIC,
    NO_SEQUENCE,
    read_header,
)
from magnetar.wire.pulsar.entry import CHECKSUM_MAGIC, EntryView
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata

PRODUCER_NAME: Final = "kafka"
"""The producer name that Pulsar clients see of what came from Kafka."""

_INT64_MAX: Final = (1 << 63) - 1
_U32: Final = Struct(">I")
_ENTRY_HEAD_BYTES: Final = 10  # magic, checksum, size of the metadata
_METADATA_ROOM: Final = 64  # what MessageMetadata takes here at most
_CRC: Final = Struct(">I")
_COMPRESSED_BYTES_MIN: Final = 1 << 10
_COMMIT_KEY: Final = b"\0\0\0\1"  # version 0, type 1
_COMMIT_VALUE: Final = bytes(6)  # version 0, coordinator epoch 0


def kafka_to_pulsar(
    batch: memoryview, plain_bytes_max: int = RECORDS_BYTES_MAX, budget: Budget = WHOLE
) -> memoryview:
    """A record batch as the entry of one Pulsar batch.

    Its compression is the batch's, as Pulsar has it, but that more than `plain_bytes_max` are compressed anyway; its
    publish time is the batch's greatest timestamp.

    Raises:
        TooLargeExpanded: there is more to convert than the budget has.
        WireError: the records cannot be read.
    """
    header = read_header(batch)
    if header.is_control:
        raise WireError("a control batch has no messages")
    codec = header.attributes & COMPRESSION_MASK
    slots = header.last_offset_delta + 1
    _check_count(slots, budget)
    records = expand(batch[HEADER_SIZE:], codec, budget.bytes_max)
    if not 0 < header.record_count <= slots:
        raise WireError(f"a batch of {header.record_count} records for {slots} offsets")
    stamped_ms = max(header.max_timestamp_ms, 0) if header.attributes & LOG_APPEND_TIME else -1
    headroom = _ENTRY_HEAD_BYTES + _METADATA_ROOM if codec == KAFKA_NONE else 0
    messages = engine.messages_of(
        records, header.record_count, slots, header.base_timestamp_ms, stamped_ms, headroom
    )
    metadata = MessageMetadata(
        producer_name=PRODUCER_NAME,
        sequence_id=max(header.base_offset, 0),
        publish_time=max(header.max_timestamp_ms, 0),
        num_messages_in_batch=slots,
        uncompressed_size=len(messages) - headroom,
    )
    if codec == KAFKA_NONE and len(messages) > plain_bytes_max:
        codec = KAFKA_ZSTD
        messages = messages[headroom:]
    if codec != KAFKA_NONE:
        metadata.compression = PULSAR_OF[codec]  # type: ignore[assignment]
        payload = compress_for_pulsar(messages, PULSAR_OF[codec])
        messages = memoryview(bytearray(_ENTRY_HEAD_BYTES + _METADATA_ROOM + len(payload)))
        messages[-len(payload) :] = payload
    described = metadata.SerializeToString()
    entry = messages[_METADATA_ROOM - len(described) :]
    _U32.pack_into(entry, 6, len(described))
    entry[_ENTRY_HEAD_BYTES : _ENTRY_HEAD_BYTES + len(described)] = described
    entry[:2] = CHECKSUM_MAGIC
    _CRC.pack_into(entry, 2, crc32c(entry[6:]))
    return entry.toreadonly()


def pulsar_to_kafka(
    view: EntryView, base_offset: int, leader_epoch: int, budget: Budget = WHOLE
) -> memoryview:
    """An entry as a record batch of the offsets that it takes, with the same compression as Kafka has it.

    What is encrypted comes out as one record, as it is (`sealed_record`).  A chunk is not a message: see
    `assembled_to_kafka` and `covering_batch`.

    Raises:
        TooLargeExpanded: there is more to convert than the budget has.
        WireError: the messages cannot be read.
    """
    metadata = view.metadata
    last_offset = base_offset + view.num_messages - 1
    if view.is_encrypted:
        return _batch(sealed_record(view), KAFKA_NONE, base_offset, last_offset, leader_epoch)
    codec = _kafka_codec(metadata)
    sent_ms = publish_time_ms(metadata)
    _check_count(view.num_messages, budget)
    payload = expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size, budget.bytes_max)
    if not view.is_batch:
        return _batch(
            plain.record_of(metadata, payload, sent_ms), codec, base_offset, last_offset, leader_epoch
        )
    headroom = HEADER_SIZE if codec == KAFKA_NONE else 0
    records = engine.records_of(payload, view.num_messages, sent_ms, headroom)
    if not records.record_count:
        return covering_batch(base_offset, last_offset, leader_epoch, sent_ms)
    return _batch(records, codec, base_offset, last_offset, leader_epoch, headroom)


def assembled_to_kafka(
    last_chunk: EntryView,
    payloads: Sequence[memoryview],
    offset: int,
    leader_epoch: int,
    budget: Budget = WHOLE,
) -> memoryview:
    """The message whose chunks have these payloads, as a batch of one record at the offset of the last chunk.

    Raises:
        WireError: the pieces are not what the last one says of them, or cannot be decompressed.
    """
    metadata = last_chunk.metadata
    return _batch(
        assembled_record(last_chunk, payloads, budget), _kafka_codec(metadata), offset, offset, leader_epoch
    )


def assembled_record(
    last_chunk: EntryView, payloads: Sequence[memoryview], budget: Budget = WHOLE
) -> Records:
    """The record of that message; raises as `assembled_to_kafka`."""
    metadata = last_chunk.metadata
    whole = memoryview(b"".join(payloads))
    if len(whole) != metadata.total_chunk_msg_size:
        raise WireError(f"chunks of {len(whole)} bytes for a message of {metadata.total_chunk_msg_size}")
    payload = expand_pulsar(whole, metadata.compression, metadata.uncompressed_size, budget.bytes_max)
    return plain.record_of(metadata, payload, publish_time_ms(metadata))


def covering_batch(base_offset: int, last_offset: int, leader_epoch: int, timestamp_ms: int) -> memoryview:
    """A batch that has nothing to read and takes the reader behind `last_offset`.

    It is a control batch, as at the end of a transaction, of no producer: every client skips those.  A batch without
    records would say the same and is legal, but clients that never saw one go wrong.  The client librdkafka takes it
    for a message too large to fetch, and kafkajs jumps to the end of the log.
    """
    record = plain.record(0, last_offset - base_offset, _COMMIT_KEY, _COMMIT_VALUE, [])
    records = Records(b"".join(record), 1, timestamp_ms, timestamp_ms)
    return _batch(records, KAFKA_NONE, base_offset, last_offset, leader_epoch, attributes=CONTROL)


def batch_of(records: Records, base_offset: int, *, stamped: bool) -> memoryview:
    """The batch of records whose offsets follow one another from `base_offset` on, of no producer.

    `stamped`: a broker has set their time, which is the same for all of them.
    """
    codec = KAFKA_LZ4 if len(records.data) >= _COMPRESSED_BYTES_MIN else KAFKA_NONE
    last_offset = base_offset + records.record_count - 1
    attributes = LOG_APPEND_TIME if stamped else 0
    return _batch(records, codec, base_offset, last_offset, -1, attributes=attributes)


def _check_count(count: int, budget: Budget) -> None:
    if count > budget.records_max:
        raise TooLargeExpanded(f"a batch of {count} messages, {budget.records_max} can be converted")


def _kafka_codec(metadata: MessageMetadata) -> int:
    codec = KAFKA_OF.get(metadata.compression)
    if codec is None:
        raise WireError(f"unknown compression {metadata.compression}")
    return codec


def publish_time_ms(metadata: MessageMetadata) -> int:
    """An entry's publish time, 0 for one that no int64 holds."""
    return metadata.publish_time if metadata.publish_time <= _INT64_MAX else 0


def _batch(
    records: Records,
    codec: int,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    headroom: int = 0,
    attributes: int = 0,
) -> memoryview:
    """The batch of `records`, which lie behind `headroom` bytes: none, or room for the header."""
    data = memoryview(records.data)
    if headroom:
        batch = data
    else:
        body = compress_for_kafka(data, codec)
        batch = memoryview(bytearray(HEADER_SIZE + len(body)))
        batch[HEADER_SIZE:] = body
    HEADER.pack_into(
        batch, 0, base_offset, len(batch) - LENGTH_PREFIX, leader_epoch, MAGIC, 0, attributes | codec,
        last_offset - base_offset, records.base_timestamp_ms, records.max_timestamp_ms, -1, -1, NO_SEQUENCE,
        records.record_count,
    )  # fmt: skip
    _CRC.pack_into(batch, CRC_COVER - _CRC.size, crc32c(batch[CRC_COVER:]))
    return batch.toreadonly()


def sealed_record(view: EntryView) -> Records:
    """An encrypted entry as one record: its payload, and in headers what it takes to open it.

    It is the record of the entry's last offset: a consumer that begins anywhere in the entry gets it.
    """
    metadata = view.metadata
    headers: list[RawHeader] = [
        (b"pulsar-encryption-algo", _bytes(metadata.encryption_algo)),
        (b"pulsar-encryption-param", metadata.encryption_param),
    ]
    for key in metadata.encryption_keys:
        name = b"pulsar-encryption-key." + _bytes(key.key)
        headers.append((name, key.value))
        headers += [(name + b"." + _bytes(one.key), _bytes(one.value)) for one in key.metadata]
    if metadata.compression != CompressionType.NONE:
        headers.append((b"pulsar-compression", CompressionType.Name(metadata.compression).encode()))
        headers.append((b"pulsar-uncompressed-size", _number(metadata.uncompressed_size)))
    if view.is_batch:
        headers.append((b"pulsar-num-messages-in-batch", _number(view.num_messages)))
    if view.is_chunk:
        headers.append((b"pulsar-chunk-uuid", _bytes(metadata.uuid)))
        headers.append((b"pulsar-chunk-id", _number(metadata.chunk_id)))
        headers.append((b"pulsar-num-chunks-from-msg", _number(metadata.num_chunks_from_msg)))
        headers.append((b"pulsar-total-chunk-msg-size", _number(metadata.total_chunk_msg_size)))
    return plain.record_of(metadata, view.payload, publish_time_ms(metadata), view.num_messages - 1, headers)


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _number(value: int) -> bytes:
    return str(value).encode()
