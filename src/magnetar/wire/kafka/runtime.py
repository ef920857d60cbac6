"""What the generated Kafka codecs share: variable-length integers, tagged sections, arrays of numbers,
failures.

Reading rules that keep hostile bytes harmless, here and in the generated code:

* a position only ever grows: a length below zero is refused (-1 means null, and only where the version
  allows null);
* an array's count is compared with the bytes that are left before anything is allocated;
* a message has a budget of array elements and tagged fields.  An object takes forty times the three bytes that can
  claim it, and a microsecond in which the server serves no other client;
* a slice may reach past the end without a check of its own.  The position is past the end from then on, so the next
  read fails, or the last check of the message does.  (A message must not end behind the frame; a response must end
  exactly where the frame does.)

Whatever goes wrong inside comes out of the public functions as `WireError`.
"""

import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NoReturn, TypeAlias, TypeVar

from magnetar.base.errors import WireError
from magnetar.base.pacing import PACED_MIN as PACED_MIN  # the generated code's, as are the next two
from magnetar.base.pacing import paced as paced
from magnetar.base.varint import varint as varint

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes on their way out.  A memoryview has items of one byte."""

ZERO_UUID: Final = bytes(16)
STRING_BYTES_MAX: Final = 0x7FFF  # Kafka's own readers refuse longer strings in compact form too

REQUEST_ELEMENTS_MAX: Final = 1 << 18  # far above the partitions of one node; half a second to read
WHOLE_REQUEST_ELEMENTS_MAX: Final = 1 << 14  # of requests that are handled in one go: what is done in 50 ms
RESPONSE_ELEMENTS_MAX: Final = 1 << 24  # tools read metadata of whole clusters

DECODE_FAILURES: Final = (struct.error, IndexError, ValueError, OverflowError)
"""What the generated readers may meet in bad bytes (UnicodeDecodeError is a ValueError)."""

NEW: Final[Any] = object()
"""The default of an array, or of another part that can be changed: an empty one, made for this message."""

_SHORT_ARRAY: Final = 16
_UNPACK_INT32S: Final = tuple(struct.Struct(f">{count}i").unpack_from for count in range(_SHORT_ARRAY))
_PACK_INT32S: Final = tuple(struct.Struct(f">{count}i").pack for count in range(_SHORT_ARRAY))


# Messages


class Message:
    """A message, or a part of one; its fields are its slots.

    The generated classes are written out.  `dataclasses` would compile three functions for each of them whenever they
    are imported, which for those that a server serves takes longer than the rest of its start.
    """

    __slots__: ClassVar[tuple[str, ...]] = ()
    arrays: ClassVar[tuple[str, ...]] = ()
    """The fields that may be lists."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return [getattr(self, name) for name in self.__slots__] == [
            getattr(other, name) for name in self.__slots__
        ]

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


M = TypeVar("M", bound=Message)


def changed(message: M, **changes: Any) -> M:
    """A copy of `message` in which these fields are others."""
    fields = {name: getattr(message, name) for name in message.__slots__}
    return message.__class__(**{**fields, **changes})


# Failures.  Functions, so that the generated code pays one line for each.


def unsupported(name: str, version: int) -> WireError:
    return WireError(f"{name} has no version {version}")


def malformed(name: str, version: int, error: Exception) -> WireError:
    return WireError(f"{name} v{version} is malformed: {error}")


def left_over(name: str, version: int, position: int, size: int) -> WireError:
    if position > size:
        return WireError(f"{name} v{version} ends {position - size} bytes before its last field does")
    return WireError(f"{name} v{version} has {size - position} bytes behind its last field")


def bad_length(field: str, length: int) -> NoReturn:
    """Refuse a null where the version has none, or a length below -1."""
    raise WireError(f"{field} has length {length}")


def bad_count(field: str, count: int) -> NoReturn:
    """Refuse an array whose elements cannot fit in the bytes that are left, or break the message's budget."""
    raise WireError(f"{field} claims {count} elements, more than the frame can hold or one message may")


def bad_tag(field: str) -> NoReturn:
    """Refuse a tagged field whose stated size is not the size of its value."""
    raise WireError(f"tagged field {field} is not of the size it states")


# Reading variable-length integers (unsigned LEB128, at most 32 bits)


def varint_tail(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already read, is `first` > 127: (value, next position)."""
    value = first & 127
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise WireError("varint is longer than 5 bytes")
    if value > 0xFFFFFFFF:
        raise WireError("varint does not fit 32 bits")
    return value, position


def string_tail(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """`varint_tail` for the length (plus one) of a string: (length plus one, next position)."""
    value, position = varint_tail(buffer, position, first)
    if value > STRING_BYTES_MAX + 1:
        raise WireError(f"string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    return value, position


# Tagged sections


def tag_header(buffer: memoryview, position: int) -> tuple[int, int, int]:
    """(tag, position of the value, position behind the value) of the tagged field at `position`."""
    tag = buffer[position]
    position += 1
    if tag > 127:
        tag, position = varint_tail(buffer, position, tag)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = varint_tail(buffer, position, size)
    stop = position + size
    if stop > len(buffer):
        raise WireError(f"tagged field {tag} of {size} bytes is larger than the frame")
    return tag, position, stop


def tag_count(buffer: memoryview, position: int, first: int, left: int) -> tuple[int, int, int]:
    """(tags, next position, budget left) of a tagged section whose first byte, already read, is `first` > 0."""
    count = first
    if first > 127:
        count, position = varint_tail(buffer, position, first)
    if count > left:
        raise WireError(f"{count} tagged fields are more than one message may have")
    return count, position, left - count


def skip_tags(buffer: memoryview, position: int, first: int, left: int) -> tuple[int, int]:
    """(position behind, budget left) of a tagged section whose first byte, already read, is `first` > 0.

    Nothing in it is known: a newer peer may send what it likes there.
    """
    count, position, left = tag_count(buffer, position, first, left)
    for _ in range(count):
        position = tag_header(buffer, position)[2]
    return position, left


def tagged(tag: int, parts: Sequence[Buffer]) -> bytes:
    """One tagged field on the wire: number, size, value."""
    value = b"".join(parts)
    return varint(tag) + varint(len(value)) + value


# Arrays of numbers.  The caller has checked that `count` of them fit.


def read_int32s(buffer: memoryview, position: int, count: int) -> list[int]:
    if count < _SHORT_ARRAY:
        return list(_UNPACK_INT32S[count](buffer, position))
    return list(struct.unpack_from(f">{count}i", buffer, position))


def pack_int32s(values: Sequence[int]) -> bytes:
    count = len(values)
    if count < _SHORT_ARRAY:
        return _PACK_INT32S[count](*values)
    return struct.pack(f">{count}i", *values)


def read_numbers(code: str, buffer: memoryview, position: int, count: int) -> list[int]:
    """`count` numbers of the `struct` type `code`."""
    return list(struct.unpack_from(f">{count}{code}", buffer, position))


def pack_numbers(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}{code}", *values)
