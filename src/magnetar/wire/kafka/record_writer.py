"""A record batch of one record, for messages that are published one at a time, not in a client's batches.

The batch is as a producer without idempotence sends it; the partition that appends it gives it its offset.

Spec: Kafka documentation, "Message format", sections "Record Batch" and "Record".
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from magnetar.base.varint import varint
from magnetar.wire.kafka.records import (
    CRC_COVER,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    NO_SEQUENCE,
)

_CRC: Final = Struct(">I")
_NOTHING: Final = varint(1)  # -1 in zigzag: null


def single_record(
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> memoryview:
    """The batch, in memory that the broker may write its fields into."""
    fields = [b"\0", varint(0), varint(0), _field(key), _field(value), varint(2 * len(headers))]
    for name, content in headers:
        fields += (_field(name.encode()), _field(content))
    record = b"".join(fields)
    records = varint(2 * len(record)) + record
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch, 0, 0, HEADER_SIZE - LENGTH_PREFIX + len(records), -1, MAGIC, 0, 0, 0, timestamp_ms, timestamp_ms,
        -1, -1, NO_SEQUENCE, 1,
    )  # fmt: skip
    batch += records
    _CRC.pack_into(batch, CRC_COVER - _CRC.size, crc32c(memoryview(batch)[CRC_COVER:]))
    return memoryview(batch)


def _field(content: bytes | None) -> bytes:
    """Its length as a zigzag varint, and the bytes."""
    return _NOTHING if content is None else varint(2 * len(content)) + content
