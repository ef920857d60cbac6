"""Kafka records to the messages of a Pulsar batch, compiled; `compiled_bytes.py` has the rules."""

from typing import Any, Final

import numpy as np
from numba import types

from magnetar.wire.compiled_bytes import (
    INPUT,
    OUTPUT,
    byte_at,
    compiled,
    is_utf8,
    put,
    put_base64,
    put_bytes,
    put_name,
    put_u32,
    put_varint,
    text_size,
    varint_size,
    zigzag,
)
from magnetar.wire.convert.compiled_names import BASE64, KIND_AT, KIND_SIZE, KINDS, NULL, PLAIN, TEXT, kind_of
from magnetar.wire.convert.naming import HEADERS_MAX, ORDERING_KEY

BAD_RECORD: Final = -1
BAD_OFFSET: Final = -2
TOO_MANY_HEADERS: Final = -3

_FEW: Final = 16  # headers whose names are compared each with each
_ORDERING_KEY: Final = np.frombuffer(ORDERING_KEY, np.uint8)


@compiled()
def _same(data: Any, one: int, other: int, size: int) -> bool:
    for index in range(size):  # noqa: SIM110  numba compiles no generators
        if data[one + index] != data[other + index]:
            return False
    return True


@compiled()
def _read_header(data: Any, position: int, end: int) -> Any:
    """(name at, name size, value at, value size or -1, position behind); the last is -1 when it is malformed."""
    name_size, name_at = zigzag(data, position, end)
    if name_at < 0 or name_size < 0 or name_size > end - name_at:
        return 0, 0, 0, 0, -1
    value_size, value_at = zigzag(data, name_at + name_size, end)
    if value_at < 0 or value_size > end - value_at:
        return 0, 0, 0, 0, -1
    value_size = max(value_size, -1)
    return name_at, name_size, value_at, value_size, value_at + max(value_size, 0)


@compiled()
def _count_names(data: Any, position: int, end: int, count: int, seed: int) -> Any:
    """For each header, how many before it have its name; an empty array when a header is malformed.

    Names are found by hash from a secret seed: a client cannot make them collide.
    """
    earlier = np.zeros(count, np.int64)
    at = np.empty(count, np.int64)
    sizes = np.empty(count, np.int64)
    slots = 32
    while slots < 2 * count:
        slots *= 2
    newest = np.full(slots, -1, np.int64)
    for header in range(count):
        name_at, name_size, _, _, position = _read_header(data, position, end)
        if position < 0:
            return np.zeros(0, np.int64)
        at[header] = name_at
        sizes[header] = name_size
        mixed = seed ^ name_size
        for index in range(name_size):
            mixed = (mixed ^ byte_at(data, name_at + index)) * 0x5851_F42D_4C95_7F2D
            mixed ^= (mixed >> 29) & 0x7_FFFF_FFFF
        slot = mixed & (slots - 1)
        while newest[slot] >= 0:
            other = newest[slot]
            if sizes[other] == name_size and _same(data, at[other], name_at, name_size):
                earlier[header] = earlier[other] + 1
                break
            slot = (slot + 1) & (slots - 1)
        newest[slot] = header
    return earlier


@compiled()
def _earlier(data: Any, position: int, end: int, header: int, name_at: int, name_size: int) -> int:
    """How many of the first `header` headers have this name."""
    found = 0
    for _ in range(header):
        other_at, other_size, _, _, position = _read_header(data, position, end)
        if other_size == name_size and _same(data, other_at, name_at, name_size):
            found += 1
    return found


@compiled()
def _put_property(
    out: Any, at: int, data: Any, name_at: int, name_size: int, value_at: int, value_size: int, earlier: int
) -> int:
    name_end = name_at + name_size
    characters = text_size(data, name_at, name_end)
    if value_size < 0:
        kind, size = NULL, 0
    elif is_utf8(data, value_at, value_at + value_size):
        kind, size = TEXT, value_size
    else:
        kind, size = BASE64, 4 * ((value_size + 2) // 3)
    is_plain = kind == TEXT and earlier == 0 and kind_of(data, name_at, name_end)[0] == PLAIN
    digits = 1
    power = 10
    while earlier >= power:
        power *= 10
        digits += 1
    key_size = characters if is_plain else characters + 1 + digits + 1 + KIND_SIZE[kind]
    body = 1 + varint_size(key_size) + key_size + 1 + varint_size(size) + size
    at = put_varint(out, put(out, at, 0x0A), body)
    at = put_varint(out, put(out, at, 0x0A), key_size)
    at = put_name(out, at, data, name_at, name_end)
    if not is_plain:
        at = put(out, at, 0x3B)
        while digits:
            power //= 10
            at = put(out, at, 0x30 + earlier // power % 10)
            digits -= 1
        at = put(out, at, 0x3B)
        for index in range(KIND_SIZE[kind]):
            at = put(out, at, KINDS[KIND_AT[kind] + index])
    at = put_varint(out, put(out, at, 0x12), size)
    if kind == TEXT:
        return put_bytes(out, at, data, value_at, size)
    if kind == BASE64:
        return put_base64(out, at, data, value_at, value_size)
    return at


@compiled()
def _is_ordering_key(data: Any, name_at: int, name_size: int) -> bool:
    if name_size != len(_ORDERING_KEY):
        return False
    for index in range(name_size):  # noqa: SIM110
        if data[name_at + index] != _ORDERING_KEY[index]:
            return False
    return True


@compiled()
def _put_compacted_out(out: Any, at: int) -> int:
    put_u32(out, at, 4)
    return put(out, put(out, put(out, put(out, at + 4, 0x18), 0), 0x20), 1)


@compiled(
    types.int64(INPUT, types.int64, types.int64, types.int64, types.int64, types.int64, OUTPUT, types.int64)
)
def messages_of(
    data: Any,
    record_count: int,
    slots: int,
    base_timestamp_ms: int,
    stamped_ms: int,
    seed: int,
    out: Any,
    start: int,
) -> int:
    """`record_count` Kafka records, as the messages of a Pulsar batch of `slots` messages.

    `stamped_ms`: the time of all of them when the broker stamped them, else -1.
    """
    size = len(data)
    position = 0
    at = start
    next_slot = 0
    for _ in range(record_count):
        length, position = zigzag(data, position, size)
        if position < 0 or length <= 0 or length > size - position:
            return BAD_RECORD
        end = position + length
        timestamp_delta, position = zigzag(data, position + 1, end)
        if position < 0:
            return BAD_RECORD
        offset_delta, position = zigzag(data, position, end)
        if position < 0:
            return BAD_RECORD
        key_size, key_at = zigzag(data, position, end)
        if key_at < 0 or key_size > end - key_at:
            return BAD_RECORD
        value_size, value_at = zigzag(data, key_at + max(key_size, 0), end)
        if value_at < 0 or value_size > end - value_at:
            return BAD_RECORD
        header_count, position = zigzag(data, value_at + max(value_size, 0), end)
        if position < 0 or header_count < 0 or 2 * header_count > end - position:
            return BAD_RECORD
        if header_count > HEADERS_MAX:
            return TOO_MANY_HEADERS
        if offset_delta < next_slot or offset_delta >= slots:
            return BAD_OFFSET
        while next_slot < offset_delta:
            at = _put_compacted_out(out, at)
            next_slot += 1
        next_slot += 1

        metadata_at = at + 4
        at = metadata_at
        ordering_at = 0
        ordering_size = -1
        headers_at = position
        earlier = (
            _count_names(data, position, end, header_count, seed)
            if header_count > _FEW
            else np.zeros(0, np.int64)
        )
        if header_count > _FEW and len(earlier) == 0:
            return BAD_RECORD
        for header in range(header_count):
            name_at, name_size, content_at, content_size, position = _read_header(data, position, end)
            if position < 0:
                return BAD_RECORD
            if (
                header == header_count - 1
                and content_size >= 0
                and _is_ordering_key(data, name_at, name_size)
            ):
                ordering_at, ordering_size = content_at, content_size
                continue
            before = (
                earlier[header]
                if header_count > _FEW
                else _earlier(data, headers_at, end, header, name_at, name_size)
            )
            at = _put_property(out, at, data, name_at, name_size, content_at, content_size, before)
        if position != end:
            return BAD_RECORD
        is_base64 = False
        if key_size >= 0:
            is_base64 = not is_utf8(data, key_at, key_at + key_size)
            at = put(out, at, 0x12)
            if is_base64:
                at = put_varint(out, at, 4 * ((key_size + 2) // 3))
                at = put_base64(out, at, data, key_at, key_size)
            else:
                at = put_varint(out, at, key_size)
                at = put_bytes(out, at, data, key_at, key_size)
        at = put_varint(out, put(out, at, 0x18), max(value_size, 0))
        timestamp_ms = stamped_ms if stamped_ms >= 0 else base_timestamp_ms + timestamp_delta
        if timestamp_ms > 0:
            at = put_varint(out, put(out, at, 0x28), timestamp_ms)
        if is_base64:
            at = put(out, put(out, at, 0x30), 1)
        if ordering_size >= 0:
            at = put_varint(out, put(out, at, 0x3A), ordering_size)
            at = put_bytes(out, at, data, ordering_at, ordering_size)
        if value_size < 0:
            at = put(out, put(out, at, 0x48), 1)
        put_u32(out, metadata_at - 4, at - metadata_at)
        if value_size > 0:
            at = put_bytes(out, at, data, value_at, value_size)
    if position != size:
        return BAD_RECORD
    while next_slot < slots:
        at = _put_compacted_out(out, at)
        next_slot += 1
    return at
