"""Bytes for compiled code: numbers, text, base64.  And the rules of all compiled code, `compiled_*.py`:

Importing such a module compiles it (seconds; under one when numba finds its cache): `compiling.py` does that on a
thread of its own, and only compiled modules import each other.  They read bytes that a client wrote.  Every length is
checked against what is left before it is used, so a hostile batch gets an error code, never a read or a write outside
the arrays.

Bytes that do not fit into `out` are counted and not written: a result beyond `len(out)` is the size with which the
caller comes back.  All arithmetic is on int64: numba would turn a mix of signed and unsigned numbers into floats.  Each
package with compiled modules has the same in plain Python, which defines the meaning; names and meaning agree.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

_LOW_63: Final = 0x7FFF_FFFF_FFFF_FFFF
_ALPHABET: Final = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_SIXBITS: Final = np.full(256, -1, np.int64)
_SIXBITS[_ALPHABET] = np.arange(64)

INPUT: Final = types.Array(types.uint8, 1, "C", readonly=True)
OUTPUT: Final = types.uint8[::1]

_raw_memcpy: Any = cgutils.raw_memcpy


def compiled(*signature: Any) -> Callable[[F], F]:
    """Compiled with this signature when the module is imported; without one, as its callers need it."""
    decorate: Any = njit
    # What has no signature becomes part of its callers, which are kept together with it.
    return cast("Callable[[F], F]", decorate(*signature, nogil=True, cache=bool(signature)))


def place_in(context: Any, builder: Any, kind: Any, memory: Any, index: Any) -> Any:
    """The address of one of an array's elements, or of what a pointer points to."""
    base = (
        memory
        if isinstance(kind, types.CPointer)
        else context.make_array(kind)(context, builder, memory).data
    )
    return builder.gep(base, [index])


def _memcpy(typing_context: Any, out: Any, at: Any, data: Any, position: Any, size: Any) -> Any:
    """Copy without a check and without a slice: a slice costs more than most keys."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = place_in(context, builder, signature.args[0], arguments[0], arguments[1])
        source = place_in(context, builder, signature.args[2], arguments[2], arguments[3])
        _raw_memcpy(builder, target, source, arguments[4], context.get_constant(types.int64, 1))
        return context.get_dummy_value()

    return types.void(out, types.int64, data, types.int64, types.int64), generate


memcpy: Any = intrinsic(_memcpy)


# --- writing ---------------------------------------------------------------------------------------------------------


@compiled()
def put(out: Any, at: int, byte: int) -> int:
    if at < len(out):
        out[at] = byte
    return at + 1


@compiled()
def put_varint(out: Any, at: int, value: int) -> int:
    while value & ~0x7F:
        at = put(out, at, (value & 0x7F) | 0x80)
        value = (value >> 7) & 0x01FF_FFFF_FFFF_FFFF
    return put(out, at, value)


@compiled()
def put_zigzag(out: Any, at: int, value: int) -> int:
    return put_varint(out, at, (value << 1) ^ (value >> 63))


@compiled()
def put_u32(out: Any, at: int, value: int) -> None:
    if at + 4 <= len(out):
        out[at] = value >> 24
        out[at + 1] = value >> 16
        out[at + 2] = value >> 8
        out[at + 3] = value


@compiled()
def put_bytes(out: Any, at: int, data: Any, position: int, size: int) -> int:
    if size and at + size <= len(out):
        memcpy(out, at, data, position, size)
    return at + size


@compiled()
def varint_size(value: int) -> int:
    size = 1
    while value & ~0x7F:
        value = (value >> 7) & 0x01FF_FFFF_FFFF_FFFF
        size += 1
    return size


@compiled()
def zigzag_size(value: int) -> int:
    return varint_size((value << 1) ^ (value >> 63))


# --- reading ---------------------------------------------------------------------------------------------------------


@compiled()
def byte_at(data: Any, position: int) -> int:
    return np.int64(data[position])  # type: ignore[return-value]  # to numba these are the same


@compiled()
def varint(data: Any, position: int, end: int) -> Any:
    """(value, position behind it); the position is -1 when there is no varint of at most 10 bytes."""
    value = 0
    shift = 0
    while position < end and shift <= 63:
        byte = byte_at(data, position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return 0, -1


@compiled()
def zigzag(data: Any, position: int, end: int) -> Any:
    raw, position = varint(data, position, end)
    return ((raw >> 1) & _LOW_63) ^ -(raw & 1), position


@compiled()
def utf8_step(data: Any, position: int, end: int) -> int:
    """Bytes of the character at `position`, 0 when there is none: as strict as Python's decoder."""
    first = byte_at(data, position)
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if position + size > end:
        return 0
    second = byte_at(data, position + 1)
    low, high = 0x80, 0xBF
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return 0
    for other in range(position + 2, position + size):
        if (byte_at(data, other) & 0xC0) != 0x80:
            return 0
    return size


@compiled()
def is_utf8(data: Any, position: int, end: int) -> bool:
    while position < end:
        if data[position] < 0x80:
            position += 1
            continue
        step = utf8_step(data, position, end)
        if step == 0:
            return False
        position += step
    return True


@compiled()
def text_size(data: Any, position: int, end: int) -> int:
    """Size of a header's name as text: each byte that is none becomes the replacement character of 3 bytes."""
    size = 0
    while position < end:
        step = utf8_step(data, position, end)
        size += step if step else 3
        position += step if step else 1
    return size


@compiled()
def write_text(out: Any, at: int, data: Any, position: int, end: int) -> None:
    """What has `text_size`, where there is room for it."""
    while position < end:
        step = utf8_step(data, position, end)
        if step:
            memcpy(out, at, data, position, step)
            position += step
            at += step
        else:
            out[at] = 0xEF
            out[at + 1] = 0xBF
            out[at + 2] = 0xBD
            position += 1
            at += 3


@compiled()
def put_name(out: Any, at: int, data: Any, position: int, end: int) -> int:
    while position < end:
        step = utf8_step(data, position, end)
        if step:
            at = put_bytes(out, at, data, position, step)
            position += step
        else:
            at = put(out, put(out, put(out, at, 0xEF), 0xBF), 0xBD)
            position += 1
    return at


# --- base64 ----------------------------------------------------------------------------------------------------------


@compiled()
def put_base64(out: Any, at: int, data: Any, position: int, size: int) -> int:
    whole = at + 4 * ((size + 2) // 3)
    if whole > len(out):
        return whole
    end = position + size
    while position < end:
        left = end - position
        bits = byte_at(data, position) << 16
        if left > 1:
            bits |= byte_at(data, position + 1) << 8
        if left > 2:
            bits |= byte_at(data, position + 2)
        out[at] = _ALPHABET[(bits >> 18) & 63]
        out[at + 1] = _ALPHABET[(bits >> 12) & 63]
        out[at + 2] = _ALPHABET[(bits >> 6) & 63] if left > 1 else 0x3D
        out[at + 3] = _ALPHABET[bits & 63] if left > 2 else 0x3D
        at += 4
        position += 3
    return whole


@compiled()
def base64_size(data: Any, position: int, size: int) -> int:
    """Size of what is encoded there, -1 when that is no base64; padding may be missing."""
    end = position + size
    for _ in range(2):
        if end > position and data[end - 1] == 0x3D:
            end -= 1
    if (end - position) % 4 == 1:
        return -1
    for at in range(position, end):
        if _SIXBITS[data[at]] < 0:
            return -1
    return (end - position) * 3 // 4


@compiled()
def write_decoded(out: Any, at: int, data: Any, position: int, size: int) -> None:
    """The bytes behind base64, where there is room for them; `size` is what `base64_size` said."""
    whole = at + size
    bits = 0
    held = 0
    while at < whole:
        bits = ((bits << 6) | _SIXBITS[data[position]]) & 0xFFFFFF
        held += 6
        position += 1
        if held >= 8:
            held -= 8
            out[at] = (bits >> held) & 0xFF
            at += 1


@compiled()
def put_decoded(out: Any, at: int, data: Any, position: int, size: int) -> int:
    if at + size <= len(out):
        write_decoded(out, at, data, position, size)
    return at + size
