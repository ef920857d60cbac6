"""The checks that a produced record batch must pass before it gets an offset.

They look only at the header, and at the checksum over everything: a broker that stores batches as they come need not
open them.  The one exception is a compacted topic, whose records must have keys.  A small batch is opened at once.
For any other `NeedsOpening` asks the caller to open it on a thread (`broker/log/opening.py`), and to call again.

The header's number of records is compared with what its codec can expand the bytes to, so that later code does not
count on records that cannot exist.  A batch has at most `RECORDS_MAX` records, as in Pulsar; Java's producer splits a
batch that gets MESSAGE_TOO_LARGE, so it loses nothing by that.

The checks and their order are those of Kafka's `LogValidator` and `UnifiedLog.analyzeAndValidateRecords`.
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
from magnetar.broker.log.errors import NeedsOpening
from magnetar.broker.policy.model import TopicConfig
from magnetar.wire.kafka.record_reader import TooLargeExpanded
from magnetar.wire.kafka.record_scan import Budget, keyless
from magnetar.wire.kafka.records import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    RECORD_BYTES_MIN,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
    has_checksum,
    read_header_fields,
)
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

RECORDS_MAX: Final = BATCH_MESSAGES_MAX
RECORD_ERRORS_MAX: Final = 100
"""How many bad records of one batch an answer names."""

_ZSTD: Final = 4
# How many bytes one compressed byte can expand to.  Deflate makes 258 bytes of two bits, snappy 64 of three bytes, and
# lz4 255 of each further byte of a length.  Zstd makes a block of 128 KiB of four bytes.
EXPANSION_MAX: Final = (1, 1032, 22, 255, 32_768)
# The largest batch that is opened on the event loop, which takes 0.1 to 0.2 ms.
_AT_ONCE_BYTES_MAX: Final = 16 << 10
_AT_ONCE: Final = Budget(64 << 10, 100)


def check_batch(
    batch: memoryview, config: TopicConfig, now_ms: int, *, keys_known: bool = False
) -> HeaderFields:
    """Check a batch, and return its header; `keys_known` means that `check_keys` has passed.

    Raises:
        NeedsOpening: the batch is good, except that the caller must call `check_keys`.
        CorruptMessage: the batch fails its checksum, or has an unknown format.
        UnsupportedMessageFormat: the batch has a format older than v2.
        RecordTooLarge: it is larger than the topic's `max.message.bytes`, or has more than `RECORDS_MAX` records.
        InvalidRecord: it is not one whole batch, or its header contradicts itself or the topic's rules.
        InvalidTimestamp: its records are too old or too new for the topic.
    """
    try:
        fields = read_header_fields(batch)
    except WireError as error:
        raise InvalidRecord(str(error)) from error
    (
        _,
        batch_length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        epoch,
        sequence,
        count,
    ) = fields
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
    if not has_checksum(batch, crc):
        raise CorruptMessage("the batch fails its checksum")
    if count <= 0 or last_delta != count - 1:
        raise InvalidRecord(f"{count} records cannot have the last offset delta {last_delta}")
    codec = attributes & COMPRESSION_MASK
    if codec > _ZSTD:
        raise InvalidRecord(f"unknown compression {codec}")
    if count * RECORD_BYTES_MIN > (size - HEADER_SIZE) * EXPANSION_MAX[codec]:
        raise InvalidRecord(f"{size - HEADER_SIZE} bytes cannot hold {count} records")
    if count > RECORDS_MAX:
        raise RecordTooLarge(f"the batch has {count} records, one may have {RECORDS_MAX}")
    if attributes & CONTROL:
        raise InvalidRecord("clients may not write control records")
    if attributes & TRANSACTIONAL and producer_id < 0:
        raise InvalidRecord("a transactional batch has a producer id")
    if producer_id >= 0 and (epoch < 0 or sequence < 0):
        raise InvalidRecord("an idempotent batch has a producer epoch and a sequence number")
    if not config.log_append_time:
        oldest = now_ms - config.timestamp_before_max_ms
        newest = now_ms + config.timestamp_after_max_ms
        if max_timestamp_ms > newest or 0 <= base_timestamp_ms < oldest:
            raise InvalidTimestamp(
                f"timestamps {base_timestamp_ms} to {max_timestamp_ms} are not in {oldest} to {newest}"
            )
    if config.compact and not keys_known:
        if size > _AT_ONCE_BYTES_MAX:
            raise NeedsOpening
        try:
            check_keys(batch, BatchHeader._make(fields), _AT_ONCE)
        except TooLargeExpanded:
            raise NeedsOpening from None
    return fields


def check_keys(batch: memoryview, header: BatchHeader, budget: Budget) -> None:
    """Check that all records have keys, as records of a compacted topic must.  Runs on any thread.

    Raises:
        InvalidRecord: some records have no key; it names the first `RECORD_ERRORS_MAX` of them.
        CorruptMessage: the records cannot be read.
        TooLargeExpanded: the expanded records exceed the budget.
    """
    try:
        count, indexes = keyless(batch, header, budget, RECORD_ERRORS_MAX)
    except TooLargeExpanded:
        raise
    except WireError as error:
        raise CorruptMessage(f"the records cannot be read: {error}") from error
    if count:
        raise InvalidRecord(f"{count} records have no key, as those of a compacted topic must", indexes)
