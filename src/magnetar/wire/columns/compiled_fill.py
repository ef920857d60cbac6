"""The entries of a table to columns, compiled; `convert/compiled_bytes.py` has the rules.

Keys and values fit: their buffers are as large as all that they can come from.  Headers are counted, and written as far
as there is room: what does not fit is a reason to come back with more.
"""

from typing import Any, Final

import numpy as np
from numba import types

from magnetar.wire.columns.compiled_memory import copy, load_u8, load_u32, pointer
from magnetar.wire.columns.layout import (
    BASE_OFFSET,
    BODY_AT,
    BODY_SIZE,
    CONTENTS_END,
    COUNT,
    DAMAGED,
    FROM_MS,
    FROM_OFFSET,
    IN_EXPANDED,
    IS_STAMPED,
    KAFKA,
    KEY_END,
    KIND,
    LAST_MS,
    LAST_OFFSET,
    LAST_WANTED,
    METADATA_AT,
    METADATA_END,
    NAMES_END,
    OTHER,
    PAIRS,
    PULSAR_BATCH,
    ROWS,
    SCRATCH_WIDTH,
    SOURCE,
    STAMPED_MS,
    TIME_MS,
    VALUE_END,
    WANT_HEADERS,
    WANT_KEY,
    WANT_OFFSET,
    WANT_TIMESTAMP,
    WANT_TYPE,
    WANT_VALUE,
)
from magnetar.wire.columns.model import APPEND_TIME, CREATE_TIME, TIMESTAMP_MS_MAX
from magnetar.wire.convert.compiled_bytes import (
    BASE64,
    INPUT,
    OUTPUT,
    base64_size,
    compiled,
    memcpy,
    text_size,
    varint,
    write_decoded,
    write_text,
    zigzag,
)
from magnetar.wire.convert.compiled_protobuf import header_form, read_pair, read_tag, skip
from magnetar.wire.convert.naming import ORDERING_KEY

_ORDERING_KEY: Final = np.frombuffer(ORDERING_KEY, np.uint8)
_ORDERING_KEY_SIZE: Final = len(ORDERING_KEY)

_tuple: Any = types.Tuple
_BINARY: Final = _tuple((types.int32[::1], OUTPUT, OUTPUT))  # offsets, data, valid
_NUMBERS: Final = _tuple((types.int64[::1], types.int64[::1], types.int32[::1]))  # offset, time, type
_HEADERS: Final = _tuple((types.int32[::1], _BINARY, _BINARY))  # offsets, names, contents

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
    _F_WIDTH,
) = range(11)
assert _F_WIDTH <= SCRATCH_WIDTH

# Tags: those of a batch's SingleMessageMetadata, and those of MessageMetadata.
_T_PROPERTY, _T_KEY, _T_ORDERING, _T_EVENT, _T_BASE64, _T_NULL, _T_SIZE, _T_GONE = range(8)
_IN_BATCH: Final = np.array([0x0A, 0x12, 0x3A, 0x28, 0x30, 0x48, 0x18, 0x20], np.int64)
_ALONE: Final = np.array([0x22, 0x32, 0x92, 0x60, 0x88, 0xC8, -1, -1], np.int64)


@compiled()
def _short(data: Any, position: int, end: int) -> Any:
    """As `zigzag`, quick for numbers of one byte and two."""
    if end - position >= 2:
        first = load_u8(data, position)
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        second = load_u8(data, position + 1)
        if second < 0x80:
            number = (first & 0x7F) | (second << 7)
            return (number >> 1) ^ -(number & 1), position + 2
    return zigzag(data, position, end)


@compiled()
def _spread(column: Any) -> Any:
    """A column as pointers and sizes, which can be passed on for nothing: offsets, bytes, flags, room, rows."""
    offsets, out, valid = column
    return pointer(offsets), pointer(out), pointer(valid), len(out), len(offsets) - 1


@compiled()
def _put_field(column: Any, row: int, at: int, data: Any, data_size: int, position: int, size: int) -> int:
    """Row `row` of a column of bytes, null when `size` is below 0; where the next one begins."""
    offsets, out, valid, room, _ = column
    valid[row] = size >= 0
    if size > 0:
        if at + size > room:
            return at  # cannot be: the buffer holds all bodies
        copy(out, at, room, data, position, data_size, size)
        at += size
    offsets[row + 1] = at
    return at


@compiled()
def _put_name(column: Any, pair: int, at: int, data: Any, data_size: int, position: int, size: int) -> int:
    """The name of a pair as text; where the next one begins, be there room or not."""
    offsets, out, valid, room, pairs = column
    text = text_size(data, position, position + size)
    end = at + text
    if pair < pairs:
        offsets[pair + 1] = end
        valid[pair] = 1
        if end <= room:
            if text == size:
                copy(out, at, room, data, position, data_size, size)
            else:
                write_text(out, at, data, position, position + size)
    return end


@compiled()
def _put_content(column: Any, pair: int, at: int, data: Any, data_size: int, position: int, size: int) -> int:
    """As `_put_name`, of what a pair holds: null when `size` is below 0."""
    offsets, out, valid, room, pairs = column
    end = at + max(size, 0)
    if pair < pairs:
        offsets[pair + 1] = end
        valid[pair] = size >= 0
        if size > 0 and end <= room:
            copy(out, at, room, data, position, data_size, size)
    return end


@compiled()
def _microseconds(timestamp_ms: int) -> int:
    return max(-TIMESTAMP_MS_MAX, min(timestamp_ms, TIMESTAMP_MS_MAX)) * 1000


@compiled()
def _kafka(
    data: Any, data_size: int, position: int, size: int, count: int, base_offset: int, last_delta: int, base_ms: int,
    is_stamped: bool, stamped_ms: int, bounds: Any, out: Any,
) -> bool:  # fmt: skip
    """The records of a batch; False when they do not add up."""
    wants, key, value, numbers, headers, ends = out
    want_key, want_value, want_offset, want_timestamp, want_type, want_headers = wants
    offsets, times, kinds = numbers
    pair_offsets, names, contents = headers
    from_offset, last_wanted, from_ms, last_ms = bounds
    first_delta_wanted = max(from_offset - base_offset, 0)
    last_delta_wanted = min(last_wanted - base_offset, last_delta)
    kind = APPEND_TIME if is_stamped else CREATE_TIME
    row = ends[ROWS]
    key_end = ends[KEY_END]
    value_end = ends[VALUE_END]
    pair = ends[PAIRS]
    names_end = ends[NAMES_END]
    contents_end = ends[CONTENTS_END]
    next_delta = 0
    for _ in range(count):
        length, position = _short(data, position, size)
        if position < 0 or length <= 0 or length > size - position:
            return False
        end = position + length
        time_delta, position = _short(data, position + 1, end)
        if position < 0:
            return False
        delta, position = _short(data, position, end)
        if position < 0 or delta < next_delta or delta > last_delta:
            return False
        next_delta = delta + 1
        key_size, key_at = _short(data, position, end)
        if key_at < 0 or key_size > end - key_at:
            return False
        value_size, value_at = _short(data, key_at + max(key_size, 0), end)
        if value_at < 0 or value_size > end - value_at:
            return False
        header_count, position = _short(data, value_at + max(value_size, 0), end)
        if position < 0 or header_count < 0 or 2 * header_count > end - position:
            return False
        timestamp_ms = stamped_ms if is_stamped else base_ms + time_delta
        is_wanted = first_delta_wanted <= delta <= last_delta_wanted and from_ms <= timestamp_ms <= last_ms
        for _ in range(header_count):
            name_size, name_at = _short(data, position, end)
            if name_at < 0 or name_size < 0 or name_size > end - name_at:
                return False
            content_size, content_at = _short(data, name_at + name_size, end)
            if content_at < 0 or content_size > end - content_at:
                return False
            position = content_at + max(content_size, 0)
            if is_wanted and want_headers:
                names_end = _put_name(names, pair, names_end, data, data_size, name_at, name_size)
                contents_end = _put_content(
                    contents, pair, contents_end, data, data_size, content_at, content_size
                )
                pair += 1
        if position != end:
            return False
        if not is_wanted:
            continue
        if want_key:
            key_end = _put_field(key, row, key_end, data, data_size, key_at, key_size)
        if want_value:
            value_end = _put_field(value, row, value_end, data, data_size, value_at, value_size)
        if want_offset:
            offsets[row] = base_offset + delta
        if want_timestamp:
            times[row] = _microseconds(timestamp_ms)
        if want_type:
            kinds[row] = kind
        if want_headers:
            pair_offsets[row + 1] = pair
        row += 1
    if position != size:
        return False
    ends[ROWS] = row
    ends[KEY_END] = key_end
    ends[VALUE_END] = value_end
    ends[PAIRS] = pair
    ends[NAMES_END] = names_end
    ends[CONTENTS_END] = contents_end
    return True


@compiled()
def _read_fields(data: Any, position: int, end: int, tags: Any, found: Any) -> bool:
    """A message's metadata; False when it is none.  The tags are known apart by their wire type, too."""
    for index in range(_F_WIDTH):
        found[index] = 0
    found[_F_KEY_SIZE] = -1
    found[_F_ORDERING_SIZE] = -1
    found[_F_VALUE_SIZE] = -1
    while position < end:
        tag, position = _quick_tag(data, position, end)
        if position < 0:
            return False
        wire_type = tag & 7
        if wire_type == 0:
            number, position = _quick_varint(data, position, end)
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
            continue
        if wire_type != 2:
            position = skip(data, position, end, wire_type)
            if position < 0:
                return False
            continue
        length, position = _quick_varint(data, position, end)
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
def _quick_varint(data: Any, position: int, end: int) -> Any:
    """As `varint`, quick for numbers of one byte."""
    if position < end:
        first = load_u8(data, position)
        if first < 0x80:
            return first, position + 1
    return varint(data, position, end)


@compiled()
def _quick_tag(data: Any, position: int, end: int) -> Any:
    """As `read_tag`, quick for tags of one byte."""
    if position < end:
        first = load_u8(data, position)
        if 8 <= first < 0x80:
            return first, position + 1
    return read_tag(data, position, end)


@compiled()
def _put_message(
    data: Any, data_size: int, at: int, end: int, tags: Any, found: Any, body: Any, body_size: int, value_at: int,
    value_size: int, offset: int, publish_ms: int, bounds: Any, out: Any,
) -> None:  # fmt: skip
    """One message, if it is wanted: its metadata lies from `at` to `end` in `data`, its value in `body`."""
    wants, key, value, numbers, headers, ends = out
    want_key, want_value, want_offset, want_timestamp, want_type, want_headers = wants
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
            ends[KEY_END] = _put_decoded(key, row, ends[KEY_END], data, key_at, decoded)
        else:
            ends[KEY_END] = _put_field(key, row, ends[KEY_END], data, data_size, key_at, key_size)
    if want_value:
        size = -1 if found[_F_IS_NULL] else value_size
        ends[VALUE_END] = _put_field(value, row, ends[VALUE_END], body, body_size, value_at, size)
    offsets, times, kinds = numbers
    if want_offset:
        offsets[row] = offset
    if want_timestamp:
        times[row] = _microseconds(timestamp_ms)
    if want_type:
        kinds[row] = CREATE_TIME
    if want_headers:
        if found[_F_PROPERTIES] or found[_F_ORDERING_SIZE] >= 0:
            _put_properties(data, data_size, at, end, tags, found, headers, ends)
        headers[0][row + 1] = ends[PAIRS]


@compiled()
def _put_decoded(column: Any, row: int, at: int, data: Any, position: int, size: int) -> int:
    """As `_put_content`, of what is in base64 there; `size` is what `base64_size` said."""
    offsets, out, valid, room, rows = column
    end = at + size
    if row < rows:
        offsets[row + 1] = end
        valid[row] = 1
        if end <= room:
            write_decoded(out, at, data, position, size)
    return end


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
        tag, position = _quick_tag(data, position, end)
        if tag != tags[_T_PROPERTY]:
            position = skip(data, position, end, tag & 7)
            continue
        length, position = _quick_varint(data, position, end)
        name_at, name_size, content_at, content_size = read_pair(data, position, position + length)
        kind, name_size, size = header_form(data, name_at, name_size, content_at, content_size)
        names_end = _put_name(names, pair, names_end, data, data_size, name_at, name_size)
        if kind == BASE64:
            contents_end = _put_decoded(contents, pair, contents_end, data, content_at, size)
        else:
            contents_end = _put_content(contents, pair, contents_end, data, data_size, content_at, size)
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
        contents_end = _put_content(
            contents, pair, contents_end, data, data_size, found[_F_ORDERING_AT], size
        )
        pair += 1
    ends[PAIRS] = pair
    ends[NAMES_END] = names_end
    ends[CONTENTS_END] = contents_end


@compiled()
def _batch(
    data: Any, data_size: int, position: int, size: int, count: int, base_offset: int, publish_ms: int, found: Any,
    bounds: Any, out: Any,
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
        if not _read_fields(data, metadata_at, value_at, _IN_BATCH, found):
            return False
        value_size = found[_F_VALUE_SIZE]
        if value_size < 0 or value_size > size - value_at:
            return False
        position = value_at + value_size
        if not found[_F_IS_GONE]:
            _put_message(
                data, data_size, metadata_at, value_at, _IN_BATCH, found, data, data_size, value_at, value_size,
                base_offset + message, publish_ms, bounds, out,
            )  # fmt: skip
    return bool(position == size)


@compiled(
    types.void(
        INPUT,
        INPUT,
        types.int64[:, ::1],
        types.int64,
        types.int64[::1],
        types.int64[::1],
        _BINARY,
        _BINARY,
        _NUMBERS,
        _HEADERS,
        types.int64[::1],
        types.int64[::1],
    )
)
def fill(
    data_array: Any, expanded_array: Any, table: Any, count: int, window: Any, wants: Any, key: Any, value: Any,
    numbers: Any, headers: Any, scratch: Any, ends_array: Any,
) -> None:  # fmt: skip
    """The rows of the first `count` entries of `table`; one whose records do not add up has none and is `DAMAGED`.

    `scratch` has `SCRATCH_WIDTH` numbers that mean nothing.
    """
    data = pointer(data_array)
    expanded = pointer(expanded_array)
    found = pointer(scratch)
    ends = pointer(ends_array)
    offsets, times, kinds = numbers
    pair_offsets, names, contents = headers
    bounds = (window[FROM_OFFSET], window[LAST_WANTED], window[FROM_MS], window[LAST_MS])
    out = (
        (
            wants[WANT_KEY],
            wants[WANT_VALUE],
            wants[WANT_OFFSET],
            wants[WANT_TIMESTAMP],
            wants[WANT_TYPE],
            wants[WANT_HEADERS],
        ),
        _spread(key),
        _spread(value),
        (pointer(offsets), pointer(times), pointer(kinds)),
        (pointer(pair_offsets), _spread(names), _spread(contents)),
        ends,
    )
    for index in range(count):
        kind = table[index, KIND]
        if kind >= OTHER:
            continue
        body = expanded if table[index, SOURCE] == IN_EXPANDED else data
        body_size = len(expanded_array) if table[index, SOURCE] == IN_EXPANDED else len(data_array)
        at = table[index, BODY_AT]
        size = table[index, BODY_SIZE]
        base_offset = table[index, BASE_OFFSET]
        time_ms = table[index, TIME_MS]
        before = (
            ends[ROWS],
            ends[KEY_END],
            ends[VALUE_END],
            ends[PAIRS],
            ends[NAMES_END],
            ends[CONTENTS_END],
        )
        if kind == KAFKA:
            is_whole = _kafka(
                body, body_size, at, at + size, table[index, COUNT], base_offset,
                table[index, LAST_OFFSET] - base_offset, time_ms, table[index, IS_STAMPED] != 0,
                table[index, STAMPED_MS], bounds, out,
            )  # fmt: skip
        elif kind == PULSAR_BATCH:
            is_whole = _batch(
                body, body_size, at, at + size, table[index, COUNT], base_offset, time_ms, found, bounds, out
            )
        else:
            # Its metadata lie in the data, also where its value had to be decompressed.
            metadata_at = table[index, METADATA_AT]
            metadata_end = table[index, METADATA_END]
            is_whole = _read_fields(data, metadata_at, metadata_end, _ALONE, found)
            if is_whole:
                _put_message(
                    data, len(data_array), metadata_at, metadata_end, _ALONE, found, body, body_size, at, size,
                    base_offset, time_ms, bounds, out,
                )  # fmt: skip
        if not is_whole:
            table[index, KIND] = DAMAGED
            (
                ends[ROWS],
                ends[KEY_END],
                ends[VALUE_END],
                ends[PAIRS],
                ends[NAMES_END],
                ends[CONTENTS_END],
            ) = before
