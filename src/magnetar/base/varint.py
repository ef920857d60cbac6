"""Unsigned LEB128: seven bits a byte, the lowest first, the top bit set on all bytes but the last.

Kafka's flexible versions and protobuf write their non-negative numbers this way.
"""

from collections.abc import Callable
from typing import Final

_KEPT_BELOW: Final = 1 << 14  # varints of one or two bytes


class _Varints(dict[int, bytes]):
    """By number, the short ones kept once one was asked for: looked up, they cost no call of Python."""

    def __missing__(self, value: int) -> bytes:
        if value >= _KEPT_BELOW:
            return bytes((value & 127 | 128, value >> 7 & 127 | 128)) + self[value >> 14]
        found = self[value] = bytes((value & 127 | 128, value >> 7) if value > 127 else (value,))
        return found


varint: Final[Callable[[int], bytes]] = _Varints().__getitem__
"""A number, which is not negative, as an unsigned varint."""
