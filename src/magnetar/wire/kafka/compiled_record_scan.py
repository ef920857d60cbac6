"""The walk over a batch's records, compiled; `record_scan.py` says what is what, `compiled_bytes.py` has the rules."""

from typing import Any, Final

from numba import types

from magnetar.wire.compiled_bytes import INPUT, compiled, zigzag

BAD_RECORD: Final = -1
_NUMBERS: Final = types.int64[::1]


@compiled()
def _skip_field(data: Any, position: int, end: int) -> Any:
    """The position behind a key, a value or a header's value; -1 when it is malformed."""
    size, position = zigzag(data, position, end)
    if position < 0 or size > end - position:
        return -1
    return position + max(size, 0)


@compiled()
def _skip_headers(data: Any, position: int, end: int) -> Any:
    count, position = zigzag(data, position, end)
    if position < 0 or count < 0 or count > end - position:
        return -1
    for _ in range(count):
        size, position = zigzag(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return -1
        position = _skip_field(data, position + size, end)
        if position < 0:
            return -1
    return position


@compiled(types.int64(INPUT, types.int64, types.int64, types.int64, types.boolean, _NUMBERS, _NUMBERS))
def scan(
    data: Any, count: int, from_ms: int, from_offset: int, to_first: bool, keyless: Any, facts: Any
) -> int:
    """0, or BAD_RECORD.  `facts` is in the order of `record_scan.Facts`."""
    size = len(data)
    position = 0
    facts[0] = facts[1] = facts[2] = facts[3] = facts[4] = facts[5] = 0
    for index in range(count):
        length, position = zigzag(data, position, size)
        if position < 0 or length <= 0 or length > size - position:
            return BAD_RECORD
        end = position + length
        delta_ms, position = zigzag(data, position + 1, end)
        if position < 0:
            return BAD_RECORD
        offset, position = zigzag(data, position, end)
        if position < 0:
            return BAD_RECORD
        key_size, position = zigzag(data, position, end)
        if position < 0 or key_size > end - position:
            return BAD_RECORD
        if key_size < 0:
            if facts[5] < len(keyless):
                keyless[facts[5]] = index
            facts[5] += 1
        position = _skip_field(data, position + max(key_size, 0), end)
        if position < 0:
            return BAD_RECORD
        position = _skip_headers(data, position, end)
        if position != end:
            return BAD_RECORD
        if index == 0 or delta_ms > facts[4]:
            facts[3] = offset
            facts[4] = delta_ms
        if facts[0] == 0 and delta_ms >= from_ms and offset >= from_offset:
            facts[0] = 1
            facts[1] = offset
            facts[2] = delta_ms
            if to_first:
                return 0
    return 0 if position == size else BAD_RECORD
