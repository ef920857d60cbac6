"""Arithmetic with CRC32C checksums: a checksum is a polynomial over GF(2), modulo the CRC's own.

`joined` gives the checksum of two texts that follow each other from theirs.  A client that sends a large batch has
computed its checksum, and the server has verified it.  So the checksum that is stored with the batch needs no third
look at its bytes.  It is end to end, because it fits only the bytes that the client has summed.
"""

from functools import cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
"""Reflected, as the whole module counts: the highest bit of a value is the coefficient of x^0."""

ONE: Final = 1 << 31

_Tables = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The products of a polynomial with each byte of a checksum, from the lowest byte on."""


def joined(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of a text that is followed by one of `second_bytes` bytes, from the checksums of both.

    It costs as much as a look at some 64 KiB, however long they are.
    """
    doubling = 0
    while second_bytes:
        if second_bytes & 1:
            lowest, lower, higher, highest = _zero_bytes(doubling)
            first = (
                lowest[first & 255]
                ^ lower[first >> 8 & 255]
                ^ higher[first >> 16 & 255]
                ^ highest[first >> 24]
            )
        second_bytes >>= 1
        doubling += 1
    return first ^ second


@cache
def _zero_bytes(doubling: int) -> _Tables:
    """What 2^`doubling` zero bytes behind a text make of its checksum: they multiply it by x^(8 * 2^doubling)."""
    factor = power(8 << doubling)
    of_bits = [times(1 << bit, factor) for bit in range(32)]

    def table(byte: int) -> tuple[int, ...]:
        products = [0]
        for bit in of_bits[8 * byte : 8 * byte + 8]:
            products += [product ^ bit for product in products]
        return tuple(products)

    return table(0), table(1), table(2), table(3)


def times_x(value: int) -> int:
    return (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)


def times(left: int, right: int) -> int:
    product = 0
    while left:
        if left & ONE:
            product ^= right
        left = (left << 1) & 0xFFFFFFFF
        right = times_x(right)
    return product


@cache
def power(exponent: int) -> int:
    """x^`exponent`."""
    result, factor = ONE, ONE >> 1
    while exponent:
        if exponent & 1:
            result = times(result, factor)
        factor = times(factor, factor)
        exponent >>= 1
    return result
