"""Single values into columns, compiled; `compiled_bytes.py` has the rules.

A column comes as pointers and sizes (`spread`).  The code counts what a row has beside its key and value, and writes it
as far as there is room.
"""

from typing import Any

from magnetar.wire.columns.compiled_memory import copy, load_u8, pointer
from magnetar.wire.columns.model import TIMESTAMP_MS_MAX
from magnetar.wire.compiled_bytes import compiled, text_size, varint, write_decoded, write_text, zigzag
from magnetar.wire.convert.compiled_protobuf import read_tag


@compiled()
def short(data: Any, position: int, end: int) -> Any:
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
def quick_varint(data: Any, position: int, end: int) -> Any:
    """As `varint`, quick for numbers of one byte."""
    if position < end:
        first = load_u8(data, position)
        if first < 0x80:
            return first, position + 1
    return varint(data, position, end)


@compiled()
def quick_tag(data: Any, position: int, end: int) -> Any:
    """As `read_tag`, quick for tags of one byte."""
    if position < end:
        first = load_u8(data, position)
        if 8 <= first < 0x80:
            return first, position + 1
    return read_tag(data, position, end)


@compiled()
def spread(column: Any) -> Any:
    """A column as pointers and sizes, which can be passed on for nothing: offsets, bytes, flags, room, rows."""
    offsets, out, valid = column
    return pointer(offsets), pointer(out), pointer(valid), len(out), len(offsets) - 1


@compiled()
def put_field(column: Any, row: int, at: int, data: Any, data_size: int, position: int, size: int) -> int:
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
def put_name(column: Any, pair: int, at: int, data: Any, data_size: int, position: int, size: int) -> int:
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
def put_content(column: Any, pair: int, at: int, data: Any, data_size: int, position: int, size: int) -> int:
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
def put_decoded(column: Any, row: int, at: int, data: Any, position: int, size: int) -> int:
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
def microseconds(timestamp_ms: int) -> int:
    return max(-TIMESTAMP_MS_MAX, min(timestamp_ms, TIMESTAMP_MS_MAX)) * 1000


@compiled()
def put_origin(origins: Any, row: int, index: int, batch_index: int, event_ms: int, sequence_id: int) -> None:
    """What Pulsar's clients see beside a row."""
    entries, batch_indexes, events, sequences = origins
    entries[row] = index
    batch_indexes[row] = batch_index
    events[row] = microseconds(event_ms)
    sequences[row] = sequence_id
