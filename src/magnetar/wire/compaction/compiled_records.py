"""The walk over a batch's records and the table of keys, compiled; `compiled_bytes.py` has the rules.

`plain.py` explains the rules.  Only the hash is different: SipHash-2-4 with 128 bits of output, whose words are signed
here.
"""

from typing import Any, Final

from numba import types

from magnetar.wire.compiled_bytes import INPUT, OUTPUT, byte_at, compiled, memcpy, zigzag

MALFORMED: Final = -1
# Of a record that was walked over.
BEGIN, END, DELTA, DELTA_MS, KEY_AT, KEY_SIZE, VALUE_SIZE, WALKED_WIDTH = range(8)
# Of a key in the table; an offset below zero: the place is free.
_FIRST, _SECOND, _OFFSET, SLOT_WIDTH = range(4)
FREE: Final = -1
# What a choice says besides.
KEPT, KEPT_BYTES, NEWEST_MS, TOMBSTONES, FACTS_WIDTH = range(5)

_NUMBERS: Final = types.int64[::1]
_ROWS: Final = types.int64[:, ::1]


@compiled(types.int64(INPUT, types.int64, types.int64, _ROWS))
def walk(data: Any, count: int, last_delta: int, walked: Any) -> int:
    """Fill `walked`; return 0 if `data` is exactly `count` records with ascending offsets, else MALFORMED."""
    size = len(data)
    position = 0
    next_delta = 0
    for index in range(count):
        walked[index, BEGIN] = position
        length, position = zigzag(data, position, size)
        if position < 0 or length <= 0 or length > size - position:
            return MALFORMED
        end = position + length
        delta_ms, position = zigzag(data, position + 1, end)
        if position < 0:
            return MALFORMED
        delta, position = zigzag(data, position, end)
        if position < 0 or delta < next_delta or delta > last_delta:
            return MALFORMED
        next_delta = delta + 1
        key_size, position = zigzag(data, position, end)
        if position < 0 or key_size > end - position:
            return MALFORMED
        walked[index, KEY_AT] = position
        position += max(key_size, 0)
        value_size, position = zigzag(data, position, end)
        if position < 0 or value_size > end - position:
            return MALFORMED
        walked[index, END] = end
        walked[index, DELTA] = delta
        walked[index, DELTA_MS] = delta_ms
        walked[index, KEY_SIZE] = key_size
        walked[index, VALUE_SIZE] = value_size
        position = end
    return 0 if position == size else MALFORMED


@compiled()
def _rotated(word: int, count: int) -> int:
    return (word << count) | ((word >> (64 - count)) & ((1 << count) - 1))


@compiled()
def _round(a: int, b: int, c: int, d: int) -> Any:
    a += b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c += d
    d = _rotated(d, 16) ^ c
    a += d
    d = _rotated(d, 21) ^ a
    c += b
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    return a, b, c, d


@compiled()
def _hash(data: Any, position: int, size: int, low: int, high: int) -> Any:
    """The two words of SipHash-2-4-128."""
    a = low ^ 0x736F6D6570736575
    b = high ^ 0x646F72616E646F6D ^ 0xEE
    c = low ^ 0x6C7967656E657261
    d = high ^ 0x7465646279746573
    end = position + size
    while end - position >= 8:
        word = 0
        for index in range(8):
            word |= byte_at(data, position + index) << (8 * index)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        position += 8
    word = (size & 0xFF) << 56
    for index in range(end - position):
        word |= byte_at(data, position + index) << (8 * index)
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= 0xEE
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    first = a ^ b ^ c ^ d
    b ^= 0xDD
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return first, a ^ b ^ c ^ d


@compiled()
def _place(slots: Any, first: int, second: int) -> int:
    """The place of a key in the table, or the free place where it belongs; the table always has a free place."""
    mask = len(slots) - 1
    at = first & mask
    while slots[at, _OFFSET] >= 0 and (slots[at, _FIRST] != first or slots[at, _SECOND] != second):
        at = (at + 1) & mask
    return at


@compiled(types.int64(INPUT, _ROWS, types.int64, types.int64, types.int64, types.int64, _ROWS))
def note(data: Any, walked: Any, count: int, base_offset: int, low: int, high: int, slots: Any) -> int:
    """Note the keys of the walked records; return how many of them are new."""
    new = 0
    for index in range(count):
        size = walked[index, KEY_SIZE]
        if size < 0:
            continue
        first, second = _hash(data, walked[index, KEY_AT], size, low, high)
        at = _place(slots, first, second)
        if slots[at, _OFFSET] < 0:
            slots[at, _FIRST] = first
            slots[at, _SECOND] = second
            new += 1
        slots[at, _OFFSET] = base_offset + walked[index, DELTA]
    return new


@compiled(
    types.void(
        INPUT,
        _ROWS,
        types.int64,
        types.int64,
        types.int64,
        types.int64,
        _ROWS,
        types.boolean,
        types.boolean,
        types.boolean,
        OUTPUT,
        _NUMBERS,
        _NUMBERS,
    )
)
def choose(
    data: Any,
    walked: Any,
    count: int,
    base_offset: int,
    low: int,
    high: int,
    slots: Any,
    drops_tombstones: bool,
    empty_is_tombstone: bool,
    keeps_keyless: bool,
    out: Any,
    deltas: Any,
    facts: Any,
) -> None:
    """Copy the records that stay to `out`, which is as large as `data`, and their deltas to `deltas`."""
    kept = 0
    at = 0
    newest_ms = 0
    tombstones = 0
    for index in range(count):
        size = walked[index, KEY_SIZE]
        if size < 0:
            if not keeps_keyless:
                continue
        else:
            first, second = _hash(data, walked[index, KEY_AT], size, low, high)
            if base_offset + walked[index, DELTA] < slots[_place(slots, first, second), _OFFSET]:
                continue
            value_size = walked[index, VALUE_SIZE]
            if value_size < 0 or (empty_is_tombstone and value_size == 0):
                if drops_tombstones:
                    continue
                tombstones += 1
        begin = walked[index, BEGIN]
        length = walked[index, END] - begin
        memcpy(out, at, data, begin, length)
        at += length
        if kept == 0 or walked[index, DELTA_MS] > newest_ms:
            newest_ms = walked[index, DELTA_MS]
        deltas[kept] = walked[index, DELTA]
        kept += 1
    facts[KEPT] = kept
    facts[KEPT_BYTES] = at
    facts[NEWEST_MS] = newest_ms
    facts[TOMBSTONES] = tombstones
