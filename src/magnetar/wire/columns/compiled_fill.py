"""The entries of a table to columns, compiled; `compiled_bytes.py` has the rules.

Keys and values fit: their buffers are as large as all that they can come from.  The code counts headers, and writes
them as far as there is room.  If they do not all fit, the caller comes back with more room.
"""

from typing import Any, Final

from numba import types

from magnetar.wire.columns.compiled_cells import (
    microseconds,
    put_content,
    put_field,
    put_name,
    put_origin,
    short,
    spread,
)
from magnetar.wire.columns.compiled_memory import pointer
from magnetar.wire.columns.compiled_pulsar import ALONE, put_batch, put_message, read_fields
from magnetar.wire.columns.layout import (
    BASE_OFFSET,
    BODY_AT,
    BODY_SIZE,
    CONTENTS_END,
    COUNT,
    DAMAGED,
    FROM_MS,
    FROM_OFFSET,
    HEADERS_AS_PROPERTIES,
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
    PROPERTIES,
    PROPERTY_NAMES_END,
    PROPERTY_VALUES_END,
    PULSAR_BATCH,
    ROWS,
    SEQUENCE_ID,
    SOURCE,
    STAMPED_MS,
    TIME_MS,
    VALUE_END,
    WANT_HEADERS,
    WANT_KEY,
    WANT_OFFSET,
    WANT_PULSAR,
    WANT_TIMESTAMP,
    WANT_TYPE,
    WANT_VALUE,
)
from magnetar.wire.columns.model import APPEND_TIME, CREATE_TIME, NOT_BATCHED
from magnetar.wire.compiled_bytes import INPUT, OUTPUT, compiled

_tuple: Any = types.Tuple
_BINARY: Final = _tuple((types.int32[::1], OUTPUT, OUTPUT))  # offsets, data, valid
_NUMBERS: Final = _tuple((types.int64[::1], types.int64[::1], types.int32[::1]))  # offset, time, type
_HEADERS: Final = _tuple((types.int32[::1], _BINARY, _BINARY))  # offsets, names, contents
_ORIGINS: Final = _tuple(  # entry in the table, index in it, event time, sequence id
    (types.int32[::1], types.int32[::1], types.int64[::1], types.int64[::1])
)


@compiled()
def _kafka(
    data: Any, data_size: int, position: int, size: int, count: int, index: int, base_offset: int, last_delta: int,
    base_ms: int, is_stamped: bool, stamped_ms: int, bounds: Any, out: Any,
) -> bool:  # fmt: skip
    """The records of a batch; False when they do not add up."""
    wants, key, value, numbers, headers, origins, properties, ends = out
    want_key, want_value, want_offset, want_timestamp, want_type, want_headers, want_pulsar = wants
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
        length, position = short(data, position, size)
        if position < 0 or length <= 0 or length > size - position:
            return False
        end = position + length
        time_delta, position = short(data, position + 1, end)
        if position < 0:
            return False
        delta, position = short(data, position, end)
        if position < 0 or delta < next_delta or delta > last_delta:
            return False
        next_delta = delta + 1
        key_size, key_at = short(data, position, end)
        if key_at < 0 or key_size > end - key_at:
            return False
        value_size, value_at = short(data, key_at + max(key_size, 0), end)
        if value_at < 0 or value_size > end - value_at:
            return False
        header_count, position = short(data, value_at + max(value_size, 0), end)
        if position < 0 or header_count < 0 or 2 * header_count > end - position:
            return False
        timestamp_ms = stamped_ms if is_stamped else base_ms + time_delta
        is_wanted = first_delta_wanted <= delta <= last_delta_wanted and from_ms <= timestamp_ms <= last_ms
        for _ in range(header_count):
            name_size, name_at = short(data, position, end)
            if name_at < 0 or name_size < 0 or name_size > end - name_at:
                return False
            content_size, content_at = short(data, name_at + name_size, end)
            if content_at < 0 or content_size > end - content_at:
                return False
            position = content_at + max(content_size, 0)
            if is_wanted and want_headers:
                names_end = put_name(names, pair, names_end, data, data_size, name_at, name_size)
                contents_end = put_content(
                    contents, pair, contents_end, data, data_size, content_at, content_size
                )
                pair += 1
        if position != end:
            return False
        if not is_wanted:
            continue
        if want_key:
            key_end = put_field(key, row, key_end, data, data_size, key_at, key_size)
        if want_value:
            value_end = put_field(value, row, value_end, data, data_size, value_at, value_size)
        if want_offset:
            offsets[row] = base_offset + delta
        if want_timestamp:
            times[row] = microseconds(timestamp_ms)
        if want_type:
            kinds[row] = kind
        if want_headers:
            pair_offsets[row + 1] = pair
        if want_pulsar:
            put_origin(origins, row, index, delta, max(timestamp_ms, 0), base_offset)
            properties[0][row + 1] = ends[PROPERTIES]
            if header_count:
                ends[HEADERS_AS_PROPERTIES] = 1
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
        _ORIGINS,
        _HEADERS,
        types.int64[::1],
        types.int64[::1],
    )
)
def fill(
    data_array: Any, expanded_array: Any, table: Any, count: int, window: Any, wants: Any, key: Any, value: Any,
    numbers: Any, headers: Any, origins: Any, properties: Any, scratch: Any, ends_array: Any,
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
    entries, batch_indexes, events, sequences = origins
    property_offsets, property_names, property_values = properties
    bounds = (window[FROM_OFFSET], window[LAST_WANTED], window[FROM_MS], window[LAST_MS])
    out = (
        (
            wants[WANT_KEY],
            wants[WANT_VALUE],
            wants[WANT_OFFSET],
            wants[WANT_TIMESTAMP],
            wants[WANT_TYPE],
            wants[WANT_HEADERS],
            wants[WANT_PULSAR],
        ),
        spread(key),
        spread(value),
        (pointer(offsets), pointer(times), pointer(kinds)),
        (pointer(pair_offsets), spread(names), spread(contents)),
        (pointer(entries), pointer(batch_indexes), pointer(events), pointer(sequences)),
        (pointer(property_offsets), spread(property_names), spread(property_values)),
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
        sequence_id = table[index, SEQUENCE_ID]
        before = (
            ends[ROWS],
            ends[KEY_END],
            ends[VALUE_END],
            ends[PAIRS],
            ends[NAMES_END],
            ends[CONTENTS_END],
            ends[PROPERTIES],
            ends[PROPERTY_NAMES_END],
            ends[PROPERTY_VALUES_END],
        )
        if kind == KAFKA:
            is_whole = _kafka(
                body, body_size, at, at + size, table[index, COUNT], index, base_offset,
                table[index, LAST_OFFSET] - base_offset, time_ms, table[index, IS_STAMPED] != 0,
                table[index, STAMPED_MS], bounds, out,
            )  # fmt: skip
        elif kind == PULSAR_BATCH:
            is_whole = put_batch(
                body, body_size, at, at + size, table[index, COUNT], index, sequence_id, base_offset, time_ms, found,
                bounds, out,
            )  # fmt: skip
        else:
            # Its metadata lie in the data, also where its value had to be decompressed.
            metadata_at = table[index, METADATA_AT]
            metadata_end = table[index, METADATA_END]
            is_whole = read_fields(data, metadata_at, metadata_end, ALONE, found)
            if is_whole:
                put_message(
                    data, len(data_array), metadata_at, metadata_end, ALONE, found, body, body_size, at, size,
                    index, NOT_BATCHED, sequence_id, base_offset, time_ms, bounds, out,
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
                ends[PROPERTIES],
                ends[PROPERTY_NAMES_END],
                ends[PROPERTY_VALUES_END],
            ) = before
