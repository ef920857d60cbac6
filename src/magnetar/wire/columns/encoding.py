"""Encoding by compiled code: records are written behind room for their batch's header, which is filled in then."""

from typing import Any, Final

import numpy as np

from magnetar.wire.columns.buffers import fresh
from magnetar.wire.columns.layout import (
    CUT_BASE_MS,
    CUT_BEGIN,
    CUT_COUNT,
    CUT_END,
    CUT_GREATEST_MS,
    CUT_WIDTH,
    DONE_BATCHES,
    DONE_NEEDED,
    DONE_ROWS,
    DONE_WIDTH,
)
from magnetar.wire.columns.model import BinaryColumn, Columns, Int64s, PairsColumn, Producer
from magnetar.wire.columns.plain_encode import next_sequence, seal
from magnetar.wire.convert.codecs import compress_for_kafka
from magnetar.wire.kafka.records import HEADER_SIZE

_AT_ONCE_BYTES: Final = 4 << 20  # memory of this size is used again; more would be fresh pages each time
_BATCHES_AT_ONCE: Final = 4096
_COPY_SLACK: Final = 16


def encode(
    compiled: Any,
    columns: Columns,
    compression: int,
    rows: Int64s,
    bytes_max: int,
    records_max: int,
    producer: Producer,
    timestamp_ms: int,
) -> list[memoryview]:
    """As `columns.encode`; `compiled` is the module that does it."""
    key, value, headers = _binary(columns.key), _binary(columns.value), _pairs(columns.headers)
    times = _NO_LONGS if columns.timestamp_us is None else _constant(columns.timestamp_us, np.int64)
    _check(columns, key, value, headers, times)
    chosen = _constant(rows, np.int64)
    room = compiled.room_for(chosen, key, value, headers)
    if room < 0:
        raise ValueError("a column whose offsets lie beyond its bytes")
    headroom = 0 if compression else HEADER_SIZE
    left = room + headroom * len(rows)
    size = min(left, max(_AT_ONCE_BYTES, bytes_max)) + _COPY_SLACK
    limit = bytes_max - HEADER_SIZE + headroom
    cuts = np.empty((min(len(rows), _BATCHES_AT_ONCE), CUT_WIDTH), np.int64)
    done = np.empty(DONE_WIDTH, np.int64)
    batches: list[memoryview] = []
    sequence = producer.base_sequence
    begin = 0
    while begin < len(rows):
        out = fresh(size, np.uint8)
        compiled.encode(
            chosen, begin, key, value, headers, times, timestamp_ms, limit, records_max, headroom, out, cuts, done
        )  # fmt: skip
        if not done[DONE_BATCHES]:
            size = int(done[DONE_NEEDED]) + _COPY_SLACK
            continue
        begin += int(done[DONE_ROWS])
        view = memoryview(out.data)
        for cut in cuts[: done[DONE_BATCHES]].tolist():
            batch = view[cut[CUT_BEGIN] : cut[CUT_END]]
            if compression:
                body = compress_for_kafka(batch, compression)
                batch = memoryview(bytearray(HEADER_SIZE + len(body)))
                batch[HEADER_SIZE:] = body
            count = cut[CUT_COUNT]
            seal(batch, compression, count, cut[CUT_BASE_MS], cut[CUT_GREATEST_MS], producer, sequence)
            batches.append(batch.toreadonly())
            sequence = next_sequence(sequence, count)
    return batches


def _constant(array: Any, kind: Any) -> Any:
    """The array as compiled code takes it: in one piece, and not to be written to."""
    view = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view


_NO_LONGS: Final = _constant(np.zeros(0), np.int64)
_NO_OCTETS: Final = _constant(np.zeros(0), np.uint8)
_NO_BINARY: Final = (_constant(np.zeros(1), np.int32), _NO_OCTETS, _NO_OCTETS)
_NO_PAIRS: Final = (_constant(np.zeros(1), np.int32), _NO_BINARY, _NO_BINARY)


def _binary(column: BinaryColumn | None) -> Any:
    if column is None:
        return _NO_BINARY
    valid = _NO_OCTETS if column.valid is None else _constant(column.valid.view(np.uint8), np.uint8)
    return _constant(column.offsets, np.int32), _constant(column.data, np.uint8), valid


def _pairs(column: PairsColumn | None) -> Any:
    if column is None:
        return _NO_PAIRS
    return _constant(column.offsets, np.int32), _binary(column.names), _binary(column.values)


def _check(columns: Columns, key: Any, value: Any, headers: Any, times: Any) -> None:
    """Every column has as many rows as there are said to be."""
    count = columns.count
    pair_offsets, names, contents = headers
    for offsets in (key[0], value[0], pair_offsets):
        if len(offsets) not in (1, count + 1):
            raise ValueError(f"a column of {len(offsets) - 1} rows among columns of {count}")
    for offsets, _, valid in (key, value, names, contents):
        if len(valid) not in (0, len(offsets) - 1):
            raise ValueError(f"{len(valid)} flags for {len(offsets) - 1} values")
    if len(times) not in (0, count):
        raise ValueError(f"a column of {len(times)} rows among columns of {count}")
