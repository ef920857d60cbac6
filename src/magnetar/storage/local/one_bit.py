"""Tells whether bytes would be whole if one of their bits were the other way round, and which.

A CRC is linear: which bit is wrong follows from the difference of two checksums alone.  In the arithmetic of
polynomials over GF(2), bit number `d` of a codeword, counted from the end of its checksum, adds x^d modulo the CRC's
polynomial.  So the search is a discrete logarithm (baby steps and giant steps): its cost grows with the root of the
length.  CRC32C tells all single bits apart up to 2^31 - 1 bits.

What is wrong in another way looks like one wrong bit with a probability of (number of bits) / 2^32.
"""

from math import isqrt
from typing import Final

from crc32c import crc32c

from magnetar.storage.local.checksums import ONE, power, times, times_x

CHECKSUM_BITS: Final = 32
_LENGTH_MAX: Final = (1 << 31) // 8 - 8


def wrong_bit(data: memoryview | bytes, checksum: int) -> int | None:
    """The one bit that does not fit the CRC32C `checksum` of `data`; None if there is not exactly one.

    Bit `n` is bit `n % 8`, from the lowest, of byte `n // 8`.  If it is the checksum that has the wrong bit, the
    answer is `8 * len(data)` or greater.
    """
    difference = crc32c(data) ^ checksum
    if not difference or len(data) > _LENGTH_MAX:
        return None
    bits = 8 * len(data)
    power = _logarithm(difference, bits + CHECKSUM_BITS)
    if power is None:
        return None
    if power < CHECKSUM_BITS:
        return bits + CHECKSUM_BITS - 1 - power
    byte_from_end, place = divmod(power - CHECKSUM_BITS, 8)
    return bits - 8 * (byte_from_end + 1) + 7 - place


def _logarithm(value: int, bound: int) -> int | None:
    """The `d` below `bound` of which x^d is `value`; None if there is none."""
    step = isqrt(bound) + 1
    small: dict[int, int] = {}
    reached = ONE
    for exponent in range(step):
        small[reached] = exponent
        reached = times_x(reached)
    # x^-step is x^(order - step), and x has the order 2^31 - 1.
    back = power((1 << 31) - 1 - step)
    for giant in range(0, bound, step):
        found = small.get(value)
        if found is not None and giant + found < bound:
            return giant + found
        value = times(value, back)
    return None
