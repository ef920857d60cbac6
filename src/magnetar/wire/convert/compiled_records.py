"""The messages of a Pulsar batch to Kafka records, compiled; `compiled_bytes.py` has the rules."""

from typing import Any, Final

import numpy as np
from numba import types

from magnetar.wire.compiled_bytes import (
    INPUT,
    OUTPUT,
    base64_size,
    byte_at,
    compiled,
    put,
    put_bytes,
    put_decoded,
    put_zigzag,
    varint,
    zigzag_size,
)
from magnetar.wire.convert.compiled_names import BASE64
from magnetar.wire.convert.compiled_protobuf import header_form, read_pair, read_tag, skip
from magnetar.wire.convert.naming import ORDERING_KEY

CUT_SHORT: Final = -1
BAD_MESSAGE: Final = -2

_ORDERING_KEY: Final = np.frombuffer(ORDERING_KEY, np.uint8)
_FACTS: Final = types.int64[::1]


@compiled(types.int64(INPUT, types.int64, types.int64, OUTPUT, types.int64, _FACTS))
def records_of(data: Any, message_count: int, publish_time_ms: int, out: Any, start: int, facts: Any) -> int:
    """The messages of a Pulsar batch as Kafka records.

    `facts` gets: records written, timestamp of the first, greatest timestamp.
    """
    size = len(data)
    position = 0
    at = start
    written = 0
    base_ms = 0
    greatest_ms = -1
    for message in range(message_count):
        if size - position < 4:
            return CUT_SHORT
        metadata_size = (
            (byte_at(data, position) << 24)
            | (byte_at(data, position + 1) << 16)
            | (byte_at(data, position + 2) << 8)
            | byte_at(data, position + 3)
        )
        position += 4
        if metadata_size > size - position:
            return CUT_SHORT
        metadata_at = position
        end = position + metadata_size
        property_count = 0
        headers_size = 0
        key_at, key_size = 0, -1
        ordering_at, ordering_size = 0, -1
        value_size = -1
        event_time_ms = 0
        is_compacted_out = False
        is_base64 = False
        is_null = False
        while position < end:
            tag, position = read_tag(data, position, end)
            if position < 0:
                return BAD_MESSAGE
            wire_type = tag & 7
            if wire_type == 0:
                number, position = varint(data, position, end)
                if position < 0:
                    return BAD_MESSAGE
                if tag == 0x18:
                    value_size = number & 0xFFFF_FFFF
                    if value_size > 0x7FFF_FFFF:
                        value_size = 0  # negative: as protobuf's own reader is used in plain.py
                elif tag == 0x20:
                    is_compacted_out = number != 0
                elif tag == 0x28:
                    event_time_ms = number
                elif tag == 0x30:
                    is_base64 = number != 0
                elif tag == 0x48:
                    is_null = number != 0
                continue
            if wire_type != 2:
                position = skip(data, position, end, wire_type)
                if position < 0:
                    return BAD_MESSAGE
                continue
            length, position = varint(data, position, end)
            if position < 0 or length < 0 or length > end - position:
                return BAD_MESSAGE
            if tag == 0x0A:
                name_at, name_size, content_at, content_size = read_pair(data, position, position + length)
                if name_at < 0:
                    return BAD_MESSAGE
                _, name_size, content_size = header_form(data, name_at, name_size, content_at, content_size)
                property_count += 1
                headers_size += (
                    zigzag_size(name_size) + name_size + zigzag_size(content_size) + max(content_size, 0)
                )
            elif tag == 0x12:
                key_at, key_size = position, length
            elif tag == 0x3A:
                ordering_at, ordering_size = position, length
            position += length
        if value_size < 0 or value_size > size - position:
            return BAD_MESSAGE
        payload_at = position
        position += value_size
        if is_compacted_out:
            continue
        if is_null:
            value_size = -1
        decoded_size = -1
        if is_base64 and key_size >= 0:
            decoded_size = base64_size(data, key_at, key_size)
        record_key_size = decoded_size if decoded_size >= 0 else key_size
        timestamp_ms = event_time_ms if event_time_ms > 0 else publish_time_ms
        if written == 0:
            base_ms = timestamp_ms
        greatest_ms = max(greatest_ms, timestamp_ms)
        header_count = property_count
        if ordering_size >= 0:
            header_count += 1
            headers_size += (
                zigzag_size(len(_ORDERING_KEY))
                + len(_ORDERING_KEY)
                + zigzag_size(ordering_size)
                + ordering_size
            )
        body = (
            1
            + zigzag_size(timestamp_ms - base_ms)
            + zigzag_size(message)
            + zigzag_size(record_key_size)
            + max(record_key_size, 0)
            + zigzag_size(value_size)
            + max(value_size, 0)
            + zigzag_size(header_count)
            + headers_size
        )
        at = put(out, put_zigzag(out, at, body), 0)
        at = put_zigzag(out, at, timestamp_ms - base_ms)
        at = put_zigzag(out, at, message)
        at = put_zigzag(out, at, record_key_size)
        if decoded_size >= 0:
            at = put_decoded(out, at, data, key_at, decoded_size)
        elif key_size > 0:
            at = put_bytes(out, at, data, key_at, key_size)
        at = put_zigzag(out, at, value_size)
        if value_size > 0:
            at = put_bytes(out, at, data, payload_at, value_size)
        at = put_zigzag(out, at, header_count)
        field_at = metadata_at
        while property_count:
            tag, field_at = varint(data, field_at, end)
            if tag != 0x0A:
                field_at = skip(data, field_at, end, tag & 7)
                continue
            length, field_at = varint(data, field_at, end)
            name_at, key_length, content_at, content_length = read_pair(data, field_at, field_at + length)
            field_at += length
            property_count -= 1
            kind, name_size, content_size = header_form(data, name_at, key_length, content_at, content_length)
            at = put_bytes(out, put_zigzag(out, at, name_size), data, name_at, name_size)
            at = put_zigzag(out, at, content_size)
            if kind == BASE64:
                at = put_decoded(out, at, data, content_at, content_size)
            elif content_size > 0:
                at = put_bytes(out, at, data, content_at, content_size)
        if ordering_size >= 0:
            at = put_zigzag(out, at, len(_ORDERING_KEY))
            at = put_bytes(out, at, _ORDERING_KEY, 0, len(_ORDERING_KEY))
            at = put_bytes(out, put_zigzag(out, at, ordering_size), data, ordering_at, ordering_size)
        written += 1
    if position != size:
        return BAD_MESSAGE
    facts[0] = written
    facts[1] = base_ms
    facts[2] = greatest_ms
    return at
