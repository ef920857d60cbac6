"""Pulsar's messages to rows, compiled; `compiled_bytes.py` has the rules, `convert/plain.py` the meaning."""

from typing import Any, Final

import numpy as np

from magnetar.wire.columns.compiled_cells import (
    microseconds,
    put_content,
    put_decoded,
    put_field,
    put_name,
    put_origin,
    quick_tag,
    quick_varint,
)
from magnetar.wire.columns.compiled_memory import load_u32
from magnetar.wire.columns.layout import (
    CONTENTS_END,
    KEY_END,
    NAMES_END,
    PAIRS,
    PROPERTIES,
    PROPERTY_NAMES_END,
    PROPERTY_VALUES_END,
    ROWS,
    SCRATCH_WIDTH,
    VALUE_END,
)
from magnetar.wire.columns.model import CREATE_TIME
from magnetar.wire.compiled_bytes import base64_size, compiled, memcpy
from magnetar.wire.convert.compiled_names import BASE64
from magnetar.wire.convert.compiled_protobuf import header_form, read_pair, skip
from magnetar.wire.convert.naming import ORDERING_KEY

_ORDERING_KEY: Final = np.frombuffer(ORDERING_KEY, np.uint8)
_ORDERING_KEY_SIZE: Final = len(ORDERING_KEY)

# What is read of a message's metadata.
(
    _F_KEY_AT,
    _F_KEY_SIZE,
    _F_ORDERING_AT,
    _F_ORDERING_SIZE,
    _F_VALUE_SIZE,
    _F_EVENT_MS,
    _F_IS_GONE,
    _F_IS_BASE64,
    _F_IS_NULL,
    _F_PROPERTIES,
    _F_SEQUENCE,
    _F_HAS_SEQUENCE,
    _F_WIDTH,
) = range(13)
assert _F_WIDTH <= SCRATCH_WIDTH

# Tags: those of a batch's SingleMessageMetadata, and those of MessageMetadata.
_T_PROPERTY, _T_KEY, _T_ORDERING, _T_EVENT, _T_BASE64, _T_NULL, _T_SIZE, _T_GONE, _T_SEQUENCE = range(9)
IN_BATCH: Final = np.array([0x0A, 0x12, 0x3A, 0x28, 0x30, 0x48, 0x18, 0x20, 0x40], np.int64)
ALONE: Final = np.array([0x22, 0x32, 0x92, 0x60, 0x88, 0xC8, -1, -1, 0x10], np.int64)


@compiled()
def read_fields(data: Any, position: int, end: int, tags: Any, found: Any) -> bool:
    """A message's metadata; False when it is none.  The tags are known apart by their wire type, too."""
    for index in range(_F_WIDTH):
        found[index] = 0
    found[_F_KEY_SIZE] = -1
    found[_F_ORDERING_SIZE] = -1
    found[_F_VALUE_SIZE] = -1
    while position < end:
        tag, position = quick_tag(data, position, end)
        if position < 0:
            return False
        wire_type = tag & 7
        if wire_type == 0:
            number, position = quick_varint(data, position, end)
            if position < 0:
                return False
            if tag == tags[_T_SIZE]:
                number &= 0xFFFF_FFFF
                found[_F_VALUE_SIZE] = (
                    number if number <= 0x7FFF_FFFF else 0
                )  # as Python takes a negative one
            elif tag == tags[_T_GONE]:
                found[_F_IS_GONE] = number != 0
            elif tag == tags[_T_EVENT]:
                found[_F_EVENT_MS] = number
            elif tag == tags[_T_BASE64]:
                found[_F_IS_BASE64] = number != 0
            elif tag == tags[_T_NULL]:
                found[_F_IS_NULL] = number != 0
            elif tag == tags[_T_SEQUENCE]:
                found[_F_SEQUENCE] = number
                found[_F_HAS_SEQUENCE] = 1
            continue
        if wire_type != 2:
            position = skip(data, position, end, wire_type)
            if position < 0:
                return False
            continue
        length, position = quick_varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return False
        if tag == tags[_T_PROPERTY]:
            if read_pair(data, position, position + length)[0] < 0:
                return False
            found[_F_PROPERTIES] += 1
        elif tag == tags[_T_KEY]:
            found[_F_KEY_AT] = position
            found[_F_KEY_SIZE] = length
        elif tag == tags[_T_ORDERING]:
            found[_F_ORDERING_AT] = position
            found[_F_ORDERING_SIZE] = length
        position += length
    return True


@compiled()
def put_message(
    data: Any, data_size: int, at: int, end: int, tags: Any, found: Any, body: Any, body_size: int, value_at: int,
    value_size: int, index: int, batch_index: int, sequence_id: int, offset: int, publish_ms: int, bounds: Any,
    out: Any,
) -> None:  # fmt: skip
    """One message, if it is wanted: its metadata lies from `at` to `end` in `data`, its value in `body`."""
    wants, key, value, numbers, headers, origins, properties, ends = out
    want_key, want_value, want_offset, want_timestamp, want_type, want_headers, want_pulsar = wants
    from_offset, last_wanted, from_ms, last_ms = bounds
    timestamp_ms = found[_F_EVENT_MS] if found[_F_EVENT_MS] > 0 else publish_ms
    if not (from_offset <= offset <= last_wanted and from_ms <= timestamp_ms <= last_ms):
        return
    row = ends[ROWS]
    ends[ROWS] = row + 1
    if want_key:
        key_at = found[_F_KEY_AT]
        key_size = found[_F_KEY_SIZE]
        decoded = -1
        if found[_F_IS_BASE64] and key_size >= 0:
            decoded = base64_size(data, key_at, key_size)
        if decoded >= 0:
            ends[KEY_END] = put_decoded(key, row, ends[KEY_END], data, key_at, decoded)
        else:
            ends[KEY_END] = put_field(key, row, ends[KEY_END], data, data_size, key_at, key_size)
    if want_value:
        size = -1 if found[_F_IS_NULL] else value_size
        ends[VALUE_END] = put_field(value, row, ends[VALUE_END], body, body_size, value_at, size)
    offsets, times, kinds = numbers
    if want_offset:
        offsets[row] = offset
    if want_timestamp:
        times[row] = microseconds(timestamp_ms)
    if want_type:
        kinds[row] = CREATE_TIME
    if want_headers:
        if found[_F_PROPERTIES] or found[_F_ORDERING_SIZE] >= 0:
            _put_properties(data, data_size, at, end, tags, found, headers, ends)
        headers[0][row + 1] = ends[PAIRS]
    if want_pulsar:
        sequence = found[_F_SEQUENCE] if found[_F_HAS_SEQUENCE] else sequence_id
        put_origin(origins, row, index, batch_index, max(found[_F_EVENT_MS], 0), sequence)
        if found[_F_PROPERTIES]:
            _put_properties_as_they_are(data, data_size, at, end, tags, found, properties, ends)
        properties[0][row + 1] = ends[PROPERTIES]


@compiled()
def _put_properties_as_they_are(
    data: Any, data_size: int, position: int, end: int, tags: Any, found: Any, properties: Any, ends: Any
) -> None:
    """A message's properties as Pulsar's clients see them; its metadata was read without fault."""
    _, names, values = properties
    pair = ends[PROPERTIES]
    names_end = ends[PROPERTY_NAMES_END]
    values_end = ends[PROPERTY_VALUES_END]
    left = found[_F_PROPERTIES]
    while left:
        tag, position = quick_tag(data, position, end)
        if tag != tags[_T_PROPERTY]:
            position = skip(data, position, end, tag & 7)
            continue
        length, position = quick_varint(data, position, end)
        name_at, name_size, value_at, value_size = read_pair(data, position, position + length)
        names_end = put_name(names, pair, names_end, data, data_size, name_at, name_size)
        values_end = put_name(values, pair, values_end, data, data_size, value_at, value_size)
        position += length
        pair += 1
        left -= 1
    ends[PROPERTIES] = pair
    ends[PROPERTY_NAMES_END] = names_end
    ends[PROPERTY_VALUES_END] = values_end


@compiled()
def _put_properties(
    data: Any, data_size: int, position: int, end: int, tags: Any, found: Any, headers: Any, ends: Any
) -> None:
    """A message's properties as the headers that they stand for; its metadata was read without fault."""
    _, names, contents = headers
    pair = ends[PAIRS]
    names_end = ends[NAMES_END]
    contents_end = ends[CONTENTS_END]
    left = found[_F_PROPERTIES]
    while left:
        tag, position = quick_tag(data, position, end)
        if tag != tags[_T_PROPERTY]:
            position = skip(data, position, end, tag & 7)
            continue
        length, position = quick_varint(data, position, end)
        name_at, name_size, content_at, content_size = read_pair(data, position, position + length)
        kind, name_size, size = header_form(data, name_at, name_size, content_at, content_size)
        names_end = put_name(names, pair, names_end, data, data_size, name_at, name_size)
        if kind == BASE64:
            contents_end = put_decoded(contents, pair, contents_end, data, content_at, size)
        else:
            contents_end = put_content(contents, pair, contents_end, data, data_size, content_at, size)
        position += length
        pair += 1
        left -= 1
    size = found[_F_ORDERING_SIZE]
    if size >= 0:
        offsets, out, valid, room, pairs = names
        end_of_name = names_end + _ORDERING_KEY_SIZE
        if pair < pairs:
            offsets[pair + 1] = end_of_name
            valid[pair] = 1
            if end_of_name <= room:
                memcpy(out, names_end, _ORDERING_KEY, 0, _ORDERING_KEY_SIZE)
        names_end = end_of_name
        contents_end = put_content(contents, pair, contents_end, data, data_size, found[_F_ORDERING_AT], size)
        pair += 1
    ends[PAIRS] = pair
    ends[NAMES_END] = names_end
    ends[CONTENTS_END] = contents_end


@compiled()
def put_batch(
    data: Any, data_size: int, position: int, size: int, count: int, index: int, sequence_id: int, base_offset: int,
    publish_ms: int, found: Any, bounds: Any, out: Any,
) -> bool:  # fmt: skip
    """The messages of a Pulsar batch; False when they do not add up."""
    for message in range(count):
        if size - position < 4:
            return False
        metadata_size = load_u32(data, position)
        metadata_at = position + 4
        if metadata_size > size - metadata_at:
            return False
        value_at = metadata_at + metadata_size
        if not read_fields(data, metadata_at, value_at, IN_BATCH, found):
            return False
        value_size = found[_F_VALUE_SIZE]
        if value_size < 0 or value_size > size - value_at:
            return False
        position = value_at + value_size
        if not found[_F_IS_GONE]:
            put_message(
                data, data_size, metadata_at, value_at, IN_BATCH, found, data, data_size, value_at, value_size,
                index, message, sequence_id, base_offset + message, publish_ms, bounds, out,
            )  # fmt: skip
    return bool(position == size)
