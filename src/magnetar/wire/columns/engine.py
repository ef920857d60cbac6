"""Decoding and encoding, as the rest of the program calls them."""

from typing import Final

import numpy as np

from magnetar.wire.columns import plain, plain_encode
from magnetar.wire.columns.model import (
    DECODED_BYTES_MAX,
    Columns,
    Decoded,
    Int64s,
    Producer,
    Wanted,
    Window,
)
from magnetar.wire.kafka.records import COMPRESSION_MASK
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

BATCH_BYTES_MAX: Final = 1 << 20
"""Of an encoded batch, unless said otherwise: what brokers take by default."""

_AT_ONCE_MAX: Final = 256 << 20  # 32-bit offsets hold that and another entry, whatever becomes of its bytes


def decode(
    data: Buffer,
    wanted: Wanted | None = None,
    window: Window | None = None,
    bytes_max: int = DECODED_BYTES_MAX,
) -> Decoded:
    """The rows in whole store records side by side; one that is cut off at the end is left (`Decoded.consumed`).

    It stops behind the entry with which `bytes_max` uncompressed bytes are decoded, so a little compressed data cannot
    become any amount of memory: go on at `consumed` until nothing is left.

    Raises:
        EntryCorrupt: bytes that are not what was stored.
    """
    return plain.decode(data, wanted or Wanted(), window or Window(), min(bytes_max, _AT_ONCE_MAX))


def encode(
    columns: Columns,
    compression: int = 0,
    *,
    rows: Int64s | None = None,
    bytes_max: int = BATCH_BYTES_MAX,
    records_max: int = BATCH_MESSAGES_MAX,
    producer: Producer | None = None,
    timestamp_ms: int = -1,
) -> list[memoryview]:
    """Rows as Kafka record batches (v2, checksums set, base offset 0), in their order.

    rows          which ones, by number; all of them when None
    compression   Kafka's number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    bytes_max     of a batch with its header, before compression; a record that is larger gets a batch of its own
    producer      its sequence goes on from batch to batch
    timestamp_ms  of all records when there is no timestamp column

    Raises:
        ValueError: a compression, limit or row that does not exist.
    """
    if not 0 <= compression <= 4 or compression & ~COMPRESSION_MASK:
        raise ValueError(f"there is no compression {compression}")
    if records_max < 1:
        raise ValueError(f"a batch of {records_max} records")
    if rows is None:
        rows = np.arange(columns.count, dtype=np.int64)
    elif len(rows) and not (rows.min() >= 0 and rows.max() < columns.count):
        raise ValueError(f"rows that {columns.count} rows do not have")
    return plain_encode.encode(
        columns, compression, rows, bytes_max, records_max, producer or Producer(), timestamp_ms
    )
