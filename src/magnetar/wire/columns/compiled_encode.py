"""Columns to the records of Kafka batches, compiled; `compiled_bytes.py` has the rules.

The size of a record is known before its first byte is written, so the code does not begin a record that does not fit.
Columns come from outside, too: offsets that lie beyond their bytes are an error.
"""

from typing import Any, Final

from numba import types

from magnetar.wire.columns.compiled_memory import copy, pointer, store_u8, wide
from magnetar.wire.columns.layout import (
    CUT_BASE_MS,
    CUT_BEGIN,
    CUT_COUNT,
    CUT_END,
    CUT_GREATEST_MS,
    DONE_BATCHES,
    DONE_NEEDED,
    DONE_ROWS,
)
from magnetar.wire.compiled_bytes import INPUT, OUTPUT, compiled

_tuple: Any = types.Tuple
_OFFSETS: Final = types.Array(types.int32, 1, "C", readonly=True)
_LONGS: Final = types.Array(types.int64, 1, "C", readonly=True)
_BINARY: Final = _tuple((_OFFSETS, INPUT, INPUT))  # offsets, data, valid: no bytes of it when nothing is null
_HEADERS: Final = _tuple((_OFFSETS, _BINARY, _BINARY))  # offsets, names, contents
_RECORD_ROOM: Final = 36  # what a record has besides its bytes and headers, at most: five lengths, two deltas
_PAIR_ROOM: Final = 10  # two lengths


@compiled()
def _zigzag_size(number: int) -> int:
    coded = (number << 1) ^ (number >> 63)
    if 0 <= coded < 0x80:
        return 1
    size = 2
    coded = (coded >> 14) & 0x0003_FFFF_FFFF_FFFF
    while coded:
        coded >>= 7
        size += 1
    return size


@compiled()
def _put_zigzag(out: Any, at: int, number: int) -> int:
    coded = (number << 1) ^ (number >> 63)
    while coded & ~0x7F:
        store_u8(out, at, (coded & 0x7F) | 0x80)
        coded = (coded >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    store_u8(out, at, coded)
    return at + 1


@compiled()
def _spread(column: Any) -> Any:
    """A column as pointers and sizes, which can be passed on for nothing: offsets, bytes, flags, and their numbers."""
    offsets, data, valid = column
    return pointer(offsets), pointer(data), pointer(valid), len(offsets) - 1, len(data), len(valid)


@compiled()
def _place(column: Any, row: int) -> Any:
    """(where it begins, size or -1 for null) of a row; the size is -2 when it lies beyond the column's bytes."""
    offsets, _, valid, _, data_size, flags = column
    if flags and not valid[row]:
        return 0, -1
    begin = wide(offsets[row])
    end = wide(offsets[row + 1])
    if begin < 0 or end < begin or end > data_size:
        return 0, -2
    return begin, end - begin


@compiled()
def _put_field(out: Any, at: int, room: int, column: Any, begin: int, size: int) -> int:
    at = _put_zigzag(out, at, size)
    if size > 0:
        copy(out, at, room, column[1], begin, column[4], size)
        at += size
    return at


@compiled()
def _pairs_size(names: Any, contents: Any, first: int, end: int) -> int:
    """What these pairs take in a record; -1 when one is not there."""
    total = 0
    for pair in range(first, end):
        _, name_size = _place(names, pair)
        _, content_size = _place(contents, pair)
        if name_size < 0 or content_size < -1:
            return -1
        total += _zigzag_size(name_size) + name_size + _zigzag_size(content_size) + max(content_size, 0)
    return total


@compiled(types.int64(_LONGS, _BINARY, _BINARY, _HEADERS))
def room_for(rows: Any, key_column: Any, value_column: Any, headers: Any) -> int:
    """What these rows take as records, at most; -1 when a column has not what its offsets say."""
    room = 0
    key = _spread(key_column)
    value = _spread(value_column)
    names = _spread(headers[1])
    contents = _spread(headers[2])
    pair_offsets = pointer(headers[0])
    has_key = key[3] > 0
    has_value = value[3] > 0
    has_headers = len(headers[0]) > 1
    pairs_there = min(names[3], contents[3])
    for row in rows:
        size = _RECORD_ROOM
        if has_key:
            _, key_size = _place(key, row)
            if key_size < -1:
                return -1
            size += max(key_size, 0)
        if has_value:
            _, value_size = _place(value, row)
            if value_size < -1:
                return -1
            size += max(value_size, 0)
        if has_headers:
            first = wide(pair_offsets[row])
            end = wide(pair_offsets[row + 1])
            if first < 0 or end < first or end > pairs_there:
                return -1
            pairs = _pairs_size(names, contents, first, end)
            if pairs < 0:
                return -1
            size += pairs + _PAIR_ROOM * (end - first)
        room += size
    return room


@compiled(
    types.void(
        _LONGS,
        types.int64,
        _BINARY,
        _BINARY,
        _HEADERS,
        _LONGS,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        OUTPUT,
        types.int64[:, ::1],
        types.int64[::1],
    )
)
def encode(
    row_array: Any, begin: int, key_column: Any, value_column: Any, headers: Any, time_array: Any, timestamp_ms: int,
    bytes_max: int, records_max: int, headroom: int, out_array: Any, cuts: Any, done: Any,
) -> None:  # fmt: skip
    """Whole batches of the rows from number `begin` on, as far as `out` and `cuts` have room.

    `room_for` has looked at the columns.  `bytes_max` counts a batch's `headroom`, bytes for the caller to fill.
    `cuts` gets where each batch lies and the values of its header.  `done` gets the number of batches and the number of
    their rows.  If no batch had room, it also gets how much room one would have taken.
    """
    rows = pointer(row_array)
    count = len(row_array)
    key = _spread(key_column)
    value = _spread(value_column)
    names = _spread(headers[1])
    contents = _spread(headers[2])
    pair_offsets = pointer(headers[0])
    times = pointer(time_array)
    out = pointer(out_array)
    room = len(out_array)
    has_key = key[3] > 0
    has_value = value[3] > 0
    has_headers = len(headers[0]) > 1
    has_times = len(time_array) > 0
    batches = 0
    at = 0
    number = begin
    done[DONE_BATCHES] = 0
    done[DONE_ROWS] = 0
    done[DONE_NEEDED] = 0
    while number < count and batches < len(cuts):
        batch_at = at
        first = number
        at += headroom
        base_ms = 0
        greatest_ms = 0
        while number < count and number - first < records_max:
            row = rows[number]
            at_ms = times[row] // 1000 if has_times else timestamp_ms
            index = number - first
            if index == 0:
                base_ms = at_ms
                greatest_ms = at_ms
            key_at, key_size = 0, -1
            if has_key:
                key_at, key_size = _place(key, row)
            value_at, value_size = 0, -1
            if has_value:
                value_at, value_size = _place(value, row)
            pair, pairs_end, pairs_size = 0, 0, 0
            if has_headers:
                pair = wide(pair_offsets[row])
                pairs_end = wide(pair_offsets[row + 1])
                pairs_size = _pairs_size(names, contents, pair, pairs_end)
            size = (
                1
                + _zigzag_size(at_ms - base_ms)
                + _zigzag_size(index)
                + _zigzag_size(key_size)
                + max(key_size, 0)
                + _zigzag_size(value_size)
                + max(value_size, 0)
                + _zigzag_size(pairs_end - pair)
                + pairs_size
            )
            end = at + _zigzag_size(size) + size
            if index and end - batch_at > bytes_max:
                break
            if end > room:
                # Not begun, and what there is of its batch has to come again.
                done[DONE_NEEDED] = end - batch_at
                return
            at = _put_zigzag(out, at, size)
            store_u8(out, at, 0)
            at = _put_zigzag(out, at + 1, at_ms - base_ms)
            at = _put_zigzag(out, at, index)
            at = _put_field(out, at, room, key, key_at, key_size)
            at = _put_field(out, at, room, value, value_at, value_size)
            at = _put_zigzag(out, at, pairs_end - pair)
            for one in range(pair, pairs_end):
                place, length = _place(names, one)
                at = _put_field(out, at, room, names, place, length)
                place, length = _place(contents, one)
                at = _put_field(out, at, room, contents, place, length)
            greatest_ms = max(greatest_ms, at_ms)
            number += 1
        cuts[batches, CUT_BEGIN] = batch_at
        cuts[batches, CUT_END] = at
        cuts[batches, CUT_COUNT] = number - first
        cuts[batches, CUT_BASE_MS] = base_ms
        cuts[batches, CUT_GREATEST_MS] = greatest_ms
        batches += 1
        done[DONE_BATCHES] = batches
        done[DONE_ROWS] = number - begin
