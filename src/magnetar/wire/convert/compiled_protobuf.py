"""Protobuf's fields, and what Pulsar's properties stand for, compiled; `compiled_bytes.py` has the rules."""

from typing import Any

from magnetar.wire.compiled_bytes import base64_size, compiled, varint
from magnetar.wire.convert.compiled_names import BASE64, NULL, PLAIN, TEXT, kind_of


@compiled()
def read_tag(data: Any, position: int, end: int) -> Any:
    """(tag, position behind it): the number of a field, which is not 0, and its wire type; -1 for none."""
    tag, behind = varint(data, position, end)
    if behind - position > 5 or tag < 8 or tag > 0xFFFF_FFFF:
        return 0, -1
    return tag, behind


@compiled()
def skip(data: Any, position: int, end: int, wire_type: int) -> int:
    """The position behind a field of no interest, -1 when it does not end before `end`."""
    size = -1
    if wire_type == 0:
        size, position = 0, varint(data, position, end)[1]
    elif wire_type == 1:
        size = 8
    elif wire_type == 2:
        size, position = varint(data, position, end)
    elif wire_type == 5:
        size = 4
    return position + size if position >= 0 and 0 <= size <= end - position else -1


@compiled()
def read_pair(data: Any, position: int, end: int) -> Any:
    """(key at, key size, value at, value size) of a KeyValue; the first is -1 when it is malformed."""
    key_at, key_size, value_at, value_size = position, 0, position, 0
    while position < end:
        tag, position = read_tag(data, position, end)
        if position < 0:
            return -1, 0, 0, 0
        if tag == 0x0A or tag == 0x12:
            size, position = varint(data, position, end)
            if position < 0 or size < 0 or size > end - position:
                return -1, 0, 0, 0
            if tag == 0x0A:
                key_at, key_size = position, size
            else:
                value_at, value_size = position, size
            position += size
        else:
            position = skip(data, position, end, tag & 7)
            if position < 0:
                return -1, 0, 0, 0
    return key_at, key_size, value_at, value_size


@compiled()
def header_form(data: Any, key_at: int, key_size: int, value_at: int, value_size: int) -> Any:
    """(kind, name size, value size or -1) of the header that a property stands for."""
    kind, name_size = kind_of(data, key_at, key_at + key_size)
    if kind == TEXT:
        return kind, name_size, value_size
    if kind == NULL and value_size == 0:
        return kind, name_size, -1
    if kind == BASE64:
        size = base64_size(data, value_at, value_size)
        if size >= 0:
            return kind, name_size, size
    return PLAIN, key_size, value_size
