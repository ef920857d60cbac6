"""What a produced record batch must be before it gets an offset.

Only the header is looked at, and the checksum over everything: a broker that stores batches as they come has no need to
open them.  The one exception are compacted topics, whose records must have keys.

Follows Kafka's `LogValidator` and `UnifiedLog.analyzeAndValidateRecords`, in the order of their checks.
"""

from typing import Final

from magnetar.base.errors import WireError
from magnetar.broker.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnsupportedMessageFormat,
)
from magnetar.broker.topic_config import TopicConfig
from magnetar.wire.kafka.record_reader import read_records
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    BatchHeader,
    is_intact,
    read_header,
)

_ZSTD: Final = 4


def check_batch(batch: memoryview, config: TopicConfig, now_ms: int) -> BatchHeader:
    """The header of a batch that may be appended.

    Raises:
        CorruptMessage: it fails its checksum, or has an unknown format.
        UnsupportedMessageFormat: it has a format older than v2.
        RecordTooLarge: it is larger than the topic's `max.message.bytes`.
        InvalidRecord: it is not one whole batch, or its header contradicts itself, or the topic's rules.
        InvalidTimestamp: its records are too old or too new for the topic.
    """
    try:
        header = read_header(batch)
    except WireError as error:
        raise InvalidRecord(str(error)) from error
    (
        _,
        batch_length,
        _,
        magic,
        _,
        attributes,
        last_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    if magic != MAGIC:
        if 0 <= magic < MAGIC:
            raise UnsupportedMessageFormat(f"message format v{magic} is not supported; use v{MAGIC}")
        raise CorruptMessage(f"no message format has magic {magic}")
    size = len(batch)
    if batch_length != size - LENGTH_PREFIX:
        if 0 < batch_length < size - LENGTH_PREFIX:
            raise InvalidRecord("a produce request carries exactly one record batch per partition")
        raise InvalidRecord(f"the batch says {batch_length} bytes and has {size - LENGTH_PREFIX}")
    if size > config.max_message_bytes:
        raise RecordTooLarge(f"the batch has {size} bytes, the topic allows {config.max_message_bytes}")
    if not is_intact(batch, header):
        raise CorruptMessage("the batch fails its checksum")
    if count <= 0 or last_delta != count - 1:
        raise InvalidRecord(f"{count} records cannot have the last offset delta {last_delta}")
    if not attributes & COMPRESSION_MASK and count * RECORD_BYTES_MIN > size - HEADER_SIZE:
        raise InvalidRecord(f"{size - HEADER_SIZE} bytes cannot hold {count} records")
    if attributes & CONTROL:
        raise InvalidRecord("clients may not write control records")
    if attributes & TRANSACTIONAL and producer_id < 0:
        raise InvalidRecord("a transactional batch has a producer id")
    if attributes & COMPRESSION_MASK > _ZSTD:
        raise InvalidRecord(f"unknown compression {attributes & COMPRESSION_MASK}")
    if producer_id >= 0 and (epoch < 0 or sequence < 0):
        raise InvalidRecord("an idempotent batch has a producer epoch and a sequence number")
    if not config.log_append_time:
        oldest = now_ms - config.timestamp_before_max_ms
        newest = now_ms + config.timestamp_after_max_ms
        if max_timestamp_ms > newest or 0 <= base_timestamp_ms < oldest:
            raise InvalidTimestamp(
                f"timestamps {base_timestamp_ms} to {max_timestamp_ms} are not in {oldest} to {newest}"
            )
    if config.compact:
        _check_keys(batch, header)
    return header


def _check_keys(batch: memoryview, header: BatchHeader) -> None:
    try:
        keyless = [index for index, record in enumerate(read_records(batch, header)) if record.key is None]
    except WireError as error:
        raise CorruptMessage(f"the records cannot be read: {error}") from error
    if keyless:
        raise InvalidRecord("records of a compacted topic have a key", keyless)
