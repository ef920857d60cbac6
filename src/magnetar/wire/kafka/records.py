"""Record batches, format v2 (magic 2): the header as a view, and the fields that a broker writes.

A batch is stored and sent on as the bytes it came in.  The broker reads its 61-byte header and rewrites only the two
fields that the checksum does not cover: the base offset and the leader epoch.

    0  i64  base_offset
    8  i32  batch_length            bytes after this field
   12  i32  partition_leader_epoch
   16  i8   magic                   2
   17  u32  crc32c                  of everything after this field
   21  i16  attributes              0-2 compression, 3 timestamp type (1: log append time), 4 transactional, 5 control
   23  i32  last_offset_delta
   27  i64  base_timestamp_ms
   35  i64  max_timestamp_ms
   43  i64  producer_id             -1: not idempotent
   51  i16  producer_epoch
   53  i32  base_sequence
   57  i32  record_count
   61  ...  records, compressed as a whole

Spec: Kafka documentation, section "Message format"; KIP-98.
"""

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from magnetar.base.errors import WireError

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
assert HEADER_SIZE == 61
LENGTH_PREFIX: Final = 12  # base_offset and batch_length themselves
CRC_COVER: Final = 21
MAGIC: Final = 2
RECORD_BYTES_MIN: Final = (
    7  # length, attributes, both deltas, key and value lengths, header count: a byte each
)

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20


_BASE_OFFSET: Final = Struct(">q")
_LEADER_EPOCH: Final = Struct(">i")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")  # id, epoch, base sequence
# A control record: length, attributes, two deltas, key (version, type), value (version, coordinator epoch), no headers.
_CONTROL_RECORD: Final = Struct(">bbbbbhhbhib")
_ABORT_MARKER: Final = 0
_COMMIT_MARKER: Final = 1
NO_SEQUENCE: Final = -1


class BatchHeader(NamedTuple):
    """The fixed header of one batch, field by field as on the wire."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


_make_header = BatchHeader._make
_unpack_header = HEADER.unpack_from

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""Those of `BatchHeader`, to be unpacked: a field of a named tuple costs a call."""


def read_header_fields(batch: memoryview, position: int = 0) -> HeaderFields:
    """The header of the batch at `position`; WireError when not even a header is there."""
    if len(batch) - position < HEADER_SIZE:
        raise WireError(f"a record batch needs {HEADER_SIZE} bytes, {len(batch) - position} are there")
    return _unpack_header(batch, position)


def read_header(batch: memoryview, position: int = 0) -> BatchHeader:
    """As `read_header_fields`, with names."""
    return _make_header(read_header_fields(batch, position))


def is_intact(batch: memoryview, header: BatchHeader) -> bool:
    """Whether the checksum of this one batch holds."""
    return has_checksum(batch, header.crc)


def has_checksum(batch: memoryview, crc: int) -> bool:
    """Whether this one batch has it."""
    return bool(crc32c(batch[CRC_COVER:]) == crc)


def assign_offset(batch: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the two header fields a broker owns, in place; the checksum does not cover them."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, 12, leader_epoch)


def stamp_log_append_time(batch: memoryview, header: BatchHeader, now_ms: int) -> None:
    """Mark the batch as stamped by the broker (`message.timestamp.type=LogAppendTime`) and renew its checksum."""
    _ATTRIBUTES.pack_into(batch, 21, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(batch, 35, now_ms)
    _CRC.pack_into(batch, 17, crc32c(batch[CRC_COVER:]))


def in_transaction(batch: memoryview, producer_id: int) -> memoryview:
    """A copy of a batch that was written outside of transactions, as one of this producer's transaction."""
    copy = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(copy, 21)
    _ATTRIBUTES.pack_into(copy, 21, attributes | TRANSACTIONAL)
    _PRODUCER.pack_into(copy, 43, producer_id, 0, 0)
    _CRC.pack_into(copy, 17, crc32c(memoryview(copy)[CRC_COVER:]))
    return memoryview(copy)


def end_transaction_marker(
    producer_id: int, producer_epoch: int, coordinator_epoch: int, now_ms: int, *, commit: bool
) -> bytearray:
    """The control batch that ends a transaction: one record, whose key says how (KIP-98).

    Lengths inside the record are zigzag varints, so 32 says 16.
    """
    kind = _COMMIT_MARKER if commit else _ABORT_MARKER
    record = _CONTROL_RECORD.pack(32, 0, 0, 0, 8, 0, kind, 12, 0, coordinator_epoch, 0)
    batch = bytearray(HEADER_SIZE) + record
    attributes = CONTROL | TRANSACTIONAL
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_PREFIX, -1, MAGIC, 0, attributes, 0, now_ms, now_ms,
        producer_id, producer_epoch, NO_SEQUENCE, 1,
    )  # fmt: skip
    _CRC.pack_into(batch, 17, crc32c(batch[CRC_COVER:]))
    return batch


def marker_commits(batch: memoryview) -> bool:
    """Whether the transaction marker in this control batch, which this broker has written, is a commit."""
    return bool(_CONTROL_RECORD.unpack_from(batch, HEADER_SIZE)[6] == _COMMIT_MARKER)
