"""The two conversions in Python, record by record.

They serve small entries, where calling compiled code costs more than it saves, and all entries until that code is
loaded.  Tests compare the compiled functions with them.
"""

from base64 import b64encode
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from magnetar.base.errors import WireError
from magnetar.wire.convert.naming import (
    HEADERS_MAX,
    ORDERING_KEY,
    RawHeader,
    decode_base64,
    header_of,
    is_text,
    properties_of,
)
from magnetar.wire.kafka.record_reader import read_raw_records
from magnetar.wire.kafka.runtime import Buffer, varint
from magnetar.wire.pulsar.entry import read_batch
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

_U32: Final = Struct(">I")
INT64_MAX: Final = (1 << 63) - 1
COMPACTED_OUT: Final = b"\0\0\0\x04\x18\0\x20\x01"  # u32 size, payload_size 0, compacted_out true
_NULL: Final = b"\1"  # the length -1

Texts = str | bytes  # of protobuf: bytes when they are not UTF-8


class Records(NamedTuple):
    """Uncompressed Kafka records and what their batch's header has to say of them.  Times in milliseconds."""

    data: Buffer
    record_count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


# --- Kafka to Pulsar -------------------------------------------------------------------------------------------------


def messages_of(
    data: memoryview, record_count: int, slots: int, base_timestamp_ms: int, stamped_ms: int
) -> bytes:
    """`record_count` Kafka records as the messages of a Pulsar batch of `slots` messages.

    Message i of the batch is the record with offset delta i; where there is none the message says that it is
    compacted out.  `stamped_ms`: the time of all records when the broker stamped them, else -1.

    Raises:
        WireError: the records do not add up.
    """
    parts: list[Buffer] = []
    next_slot = 0
    for record in read_raw_records(data, record_count):
        if not next_slot <= record.offset_delta < slots:
            raise WireError("the offsets of a batch's records do not ascend")
        if len(record.headers) > HEADERS_MAX:
            raise WireError(f"a record has more than {HEADERS_MAX} headers")
        parts.extend([COMPACTED_OUT] * (record.offset_delta - next_slot))
        next_slot = record.offset_delta + 1
        timestamp_ms = (
            stamped_ms if stamped_ms >= 0 else to_int64(base_timestamp_ms + record.timestamp_delta_ms)
        )
        metadata = _message_metadata(record.key, record.value, record.headers, timestamp_ms)
        parts += (_U32.pack(len(metadata)), metadata, record.value or b"")
    parts.extend([COMPACTED_OUT] * (slots - next_slot))
    return b"".join(parts)


def to_int64(value: int) -> int:
    return (value + INT64_MAX + 1) % (1 << 64) - INT64_MAX - 1


def _message_metadata(
    key: bytes | None, value: bytes | None, headers: list[RawHeader], timestamp_ms: int
) -> bytes:
    metadata = SingleMessageMetadata(payload_size=len(value or b""))
    if headers:
        name, content = headers[-1]
        if name == ORDERING_KEY and content is not None:
            metadata.ordering_key = content
            headers = headers[:-1]
        for title, text in properties_of(headers):
            metadata.properties.add(key=title.decode(), value=text.decode())
    if key is not None:
        if is_text(key):
            metadata.partition_key = key.decode()
        else:
            metadata.partition_key = b64encode(key).decode()
            metadata.partition_key_b64_encoded = True
    if timestamp_ms > 0:
        metadata.event_time = timestamp_ms
    if value is None:
        metadata.null_value = True
    return metadata.SerializeToString()


# --- Pulsar to Kafka -------------------------------------------------------------------------------------------------


def records_of(payload: memoryview, message_count: int, publish_time_ms: int) -> Records:
    """The messages of a Pulsar batch, uncompressed, as Kafka records; message i gets the offset delta i.

    Raises:
        WireError: the messages do not add up.
    """
    parts: list[Buffer] = []
    count = 0
    base_ms, greatest_ms = 0, -1
    for index, (metadata, content) in enumerate(read_batch(payload, message_count)):
        if metadata.compacted_out:
            continue
        timestamp_ms = time_of(metadata, publish_time_ms)
        if not count:
            base_ms = timestamp_ms
        count += 1
        greatest_ms = max(greatest_ms, timestamp_ms)
        parts += _record_of(metadata, content, index, timestamp_ms - base_ms)
    return Records(b"".join(parts), count, base_ms, greatest_ms)


def record_of(
    metadata: MessageMetadata,
    payload: memoryview,
    publish_time_ms: int,
    offset_delta: int = 0,
    more_headers: Sequence[RawHeader] = (),
) -> Records:
    """An entry's only message, uncompressed, as a Kafka record."""
    timestamp_ms = time_of(metadata, publish_time_ms)
    parts = _record_of(metadata, payload, offset_delta, 0, more_headers)
    return Records(b"".join(parts), 1, timestamp_ms, timestamp_ms)


def time_of(metadata: MessageMetadata | SingleMessageMetadata, publish_time_ms: int) -> int:
    """A message's time for Kafka; for Pulsar an event time of zero is none."""
    return metadata.event_time if 0 < metadata.event_time <= INT64_MAX else publish_time_ms


def _record_of(
    metadata: MessageMetadata | SingleMessageMetadata,
    payload: memoryview,
    offset_delta: int,
    timestamp_delta_ms: int,
    more_headers: Sequence[RawHeader] = (),
) -> list[Buffer]:
    headers = [header_of(_raw(one.key), _raw(one.value)) for one in metadata.properties]
    if metadata.HasField("ordering_key"):
        headers.append((ORDERING_KEY, metadata.ordering_key))
    key = None
    if metadata.HasField("partition_key"):
        key = _raw(metadata.partition_key)
        if metadata.partition_key_b64_encoded:
            decoded = decode_base64(key)
            key = key if decoded is None else decoded
    headers += more_headers
    value = None if metadata.null_value else payload
    return record(timestamp_delta_ms, offset_delta, key, value, headers)


def _raw(text: Texts) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def record(
    timestamp_delta_ms: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[RawHeader],
) -> list[Buffer]:
    """A Kafka record, in parts."""
    front = [
        b"\0",
        zigzag(timestamp_delta_ms),
        zigzag(offset_delta),
        _NULL if key is None else zigzag(len(key)),
    ]
    parts: list[Buffer] = []
    if key is not None:
        front.append(key)  # type: ignore[arg-type]
    front.append(_NULL if value is None else zigzag(len(value)))
    behind = [zigzag(len(headers))]
    for name, content in headers:
        behind += (zigzag(len(name)), name)
        behind += (_NULL,) if content is None else (zigzag(len(content)), content)
    head, tail = b"".join(front), b"".join(behind)
    size = 0 if value is None else len(value)
    parts += (zigzag(len(head) + size + len(tail)), head, value or b"", tail)
    return parts


def zigzag(value: int) -> bytes:
    """A number as Kafka's records have it."""
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)
