"""Encoding in Python, record by record; `plain.py` says when it is used."""

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from magnetar.wire.columns.model import Columns, Int64s, Producer
from magnetar.wire.convert.codecs import compress_for_kafka
from magnetar.wire.convert.naming import RawHeader
from magnetar.wire.convert.plain import record
from magnetar.wire.kafka.records import (
    CRC_COVER,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    TRANSACTIONAL,
)

_SEQUENCE_MASK: Final = 0x7FFF_FFFF  # behind the greatest sequence comes 0


def encode(
    columns: Columns,
    compression: int,
    rows: Int64s,
    bytes_max: int,
    records_max: int,
    producer: Producer,
    timestamp_ms: int,
) -> list[memoryview]:
    """As `columns.encode`."""
    batches = []
    sequence = producer.base_sequence
    for records, count, base_ms, greatest_ms in _cut(columns, rows, bytes_max, records_max, timestamp_ms):
        body = compress_for_kafka(memoryview(records), compression)
        batch = bytearray(HEADER_SIZE + len(body))
        batch[HEADER_SIZE:] = body
        seal(batch, compression, count, base_ms, greatest_ms, producer, sequence)
        batches.append(memoryview(batch).toreadonly())
        sequence = next_sequence(sequence, count)
    return batches


def seal(
    batch: bytearray | memoryview,
    compression: int,
    count: int,
    base_ms: int,
    greatest_ms: int,
    producer: Producer,
    sequence: int,
) -> None:
    """Write the header in front of a batch's records."""
    attributes = compression | (TRANSACTIONAL if producer.transactional else 0)
    size = len(batch) - LENGTH_PREFIX
    facts = (
        attributes,
        count - 1,
        base_ms,
        greatest_ms,
        producer.producer_id,
        producer.epoch,
        sequence,
        count,
    )
    HEADER.pack_into(batch, 0, 0, size, -1, MAGIC, 0, *facts)
    checksum = crc32c(memoryview(batch)[CRC_COVER:])
    HEADER.pack_into(batch, 0, 0, size, -1, MAGIC, checksum, *facts)


def next_sequence(sequence: int, count: int) -> int:
    """The sequence behind `count` records."""
    return sequence if sequence < 0 else (sequence + count) & _SEQUENCE_MASK


def _cut(
    columns: Columns, rows: Int64s, bytes_max: int, records_max: int, timestamp_ms: int
) -> Iterator[tuple[bytes, int, int, int]]:
    """(records, their number, timestamp of the first, greatest timestamp) of each batch."""
    parts: list[bytes] = []
    size = HEADER_SIZE
    base_ms = greatest_ms = 0
    for row in rows.tolist():
        at_ms = timestamp_ms if columns.timestamp_us is None else int(columns.timestamp_us[row]) // 1000
        encoded = _record(columns, row, at_ms - base_ms, len(parts))
        if parts and (size + len(encoded) > bytes_max or len(parts) == records_max):
            yield b"".join(parts), len(parts), base_ms, greatest_ms
            parts, size = [], HEADER_SIZE
        if not parts:
            base_ms = greatest_ms = at_ms
            encoded = _record(columns, row, 0, 0)
        parts.append(encoded)
        size += len(encoded)
        greatest_ms = max(greatest_ms, at_ms)
    if parts:
        yield b"".join(parts), len(parts), base_ms, greatest_ms


def _record(columns: Columns, row: int, timestamp_delta_ms: int, offset_delta: int) -> bytes:
    key = None if columns.key is None else columns.key[row]
    value = None if columns.value is None else columns.value[row]
    headers: list[RawHeader] = []
    if columns.headers is not None:
        pairs = columns.headers
        headers = [
            (pairs.names[at] or b"", pairs.values[at])
            for at in range(pairs.offsets[row], pairs.offsets[row + 1])
        ]
    return b"".join(record(timestamp_delta_ms, offset_delta, key, value, headers))
