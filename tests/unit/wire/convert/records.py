"""Record batches and Pulsar batches for tests, built and read by other people's code."""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import cramjam
from hypothesis import strategies as st
from kafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from magnetar.wire.pulsar.entry import EntryView, frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

Headers = list[tuple[str, bytes | None]]


class Sent(NamedTuple):
    """One record as a Kafka client knows it."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def kafka_batch(records: Sequence[Sent], codec: int = 0, base_offset: int = 0) -> memoryview:
    """A batch as kafka-python builds it."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
    for index, one in enumerate(records):
        builder.append(index, one.timestamp_ms, one.key, one.value, list(one.headers))
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    return memoryview(batch)


class Received(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_by_kafka(batch: memoryview) -> list[Received]:
    """The records as kafka-python reads them, checksum included."""
    read = DefaultRecordBatch(bytes(batch))
    assert read.validate_crc()
    return [Received(one.offset, one.timestamp, one.key, one.value, one.headers) for one in read]


class Message(NamedTuple):
    """One message as a Pulsar client knows it; texts are bytes because not all of them are UTF-8."""

    value: bytes
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: Sequence[tuple[str, str]] = ()
    event_time_ms: int = 0
    is_null: bool = False
    compacted_out: bool = False


def single(message: Message) -> SingleMessageMetadata:
    metadata = SingleMessageMetadata(payload_size=len(message.value))
    _describe(metadata, message)
    if message.compacted_out:
        metadata.compacted_out = True
    return metadata


def _describe(metadata: Any, message: Message) -> None:
    if message.key is not None:
        metadata.partition_key = message.key
    if message.key_is_base64:
        metadata.partition_key_b64_encoded = True
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    for key, value in message.properties:
        metadata.properties.add(key=key, value=value)
    if message.event_time_ms:
        metadata.event_time = message.event_time_ms
    if message.is_null:
        metadata.null_value = True


def _metadata(publish_time_ms: int, codec: int, size: int) -> MessageMetadata:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=publish_time_ms)
    if codec:
        metadata.compression = codec  # type: ignore[assignment]
    metadata.uncompressed_size = size
    return metadata


def compress(payload: bytes, codec: int) -> bytes:
    match codec:
        case CompressionType.LZ4:
            return bytes(cramjam.lz4.compress_block(payload, store_size=False))
        case CompressionType.ZLIB:
            return bytes(cramjam.zlib.compress(payload))
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(payload))
        case CompressionType.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(payload))
    return payload


def pulsar_batch(messages: Sequence[Message], publish_time_ms: int = 1, codec: int = 0) -> EntryView:
    """An entry as a batching producer sends it."""
    parts = []
    for message in messages:
        described = single(message).SerializeToString()
        parts += [struct.pack(">I", len(described)), described, message.value]
    payload = b"".join(parts)
    metadata = _metadata(publish_time_ms, codec, len(payload))
    metadata.num_messages_in_batch = len(messages)
    return read_entry(memoryview(frame_entry(metadata, compress(payload, codec))), verify=True)


def pulsar_single(message: Message, publish_time_ms: int = 1, codec: int = 0, **fields: Any) -> EntryView:
    """An entry as a producer sends it that does not batch."""
    metadata = _metadata(publish_time_ms, codec, len(message.value))
    _describe(metadata, message)
    for name, value in fields.items():
        setattr(metadata, name, value)
    return read_entry(memoryview(frame_entry(metadata, compress(message.value, codec))), verify=True)


timestamps = st.one_of(st.integers(1, 2_000_000_000_000), st.integers(1, 3))
blobs = st.one_of(
    st.binary(max_size=40), st.text(max_size=12).map(str.encode), st.binary(min_size=200, max_size=300)
)
endings = st.sampled_from(
    ["", ";0;text", ";1;base64", ";12;null", ";;text", ";0;tex", "0;text", ";1234567890;null"]
)
names = st.builds(str.__add__, st.text(max_size=6), endings)
sent = st.builds(
    Sent,
    timestamps,
    st.none() | blobs,
    st.none() | blobs,
    st.lists(st.tuples(names, st.none() | blobs), max_size=20),
)
properties = st.lists(st.tuples(st.text(max_size=8), st.text(max_size=20)), max_size=6)
message = st.builds(
    Message,
    value=blobs,
    key=st.none() | st.text(max_size=12),
    key_is_base64=st.just(False),
    is_null=st.just(False),
    compacted_out=st.just(False),
    ordering_key=st.none() | blobs,
    properties=properties,
    event_time_ms=st.just(0) | timestamps,
)
