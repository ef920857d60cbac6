"""Unsigned LEB128: seven bits a byte, the lowest first, the top bit set on all bytes but the last.

Kafka's flexible versions and protobuf write their non-negative numbers this way.
"""

from typing import Final


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT: Final = tuple(_encode(value) for value in range(1 << 14))  # every varint of one or two bytes


def varint(value: int) -> bytes:
    """`value`, which is not negative, as an unsigned varint."""
    return _SHORT[value] if value < 1 << 14 else _encode(value)
