"""A set of offsets, a bit each: for very many of them that lie close together.

If the set has every offset, each costs a quarter of a byte.  A single offset in a stretch of `STRETCH` costs
`STRETCH_BYTES` at most.
"""

from collections.abc import Iterable

_SHIFT = 10
STRETCH = 1 << _SHIFT
STRETCH_BYTES = 280  # a number of so many bits, and its place in the dictionary
_LOW = STRETCH - 1


class OffsetSet:
    """Offsets from 0 on, put in and taken out by half-open ranges."""

    __slots__ = ("_stretches", "count")

    def __init__(self) -> None:
        self._stretches: dict[int, int] = {}
        self.count = 0

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self._stretches) * STRETCH_BYTES

    def __contains__(self, offset: int) -> bool:
        return self._stretches.get(offset >> _SHIFT, 0) >> (offset & _LOW) & 1 == 1

    def clear(self) -> None:
        self._stretches.clear()
        self.count = 0

    def add(self, start: int, stop: int) -> None:
        stretches = self._stretches
        for number in range(start >> _SHIFT, (stop - 1 >> _SHIFT) + 1):
            before = stretches.get(number, 0)
            after = before | _mask(number, start, stop)
            stretches[number] = after
            self.count += (before ^ after).bit_count()

    def discard(self, start: int, stop: int) -> None:
        """Take out those that are in it; the cost does not grow with what is not."""
        stretches = self._stretches
        numbers: Iterable[int] = range(start >> _SHIFT, (stop - 1 >> _SHIFT) + 1)
        if stop - start >> _SHIFT > len(stretches):
            numbers = [number for number in stretches if number in numbers]
        for number in numbers:
            before = stretches.get(number)
            if before is None:
                continue
            after = before & ~_mask(number, start, stop)
            self.count -= (before ^ after).bit_count()
            if after:
                stretches[number] = after
            else:
                del stretches[number]


def _mask(number: int, start: int, stop: int) -> int:
    """The bits of [start, stop) in a stretch that it touches."""
    first = number << _SHIFT
    low, high = max(start - first, 0), min(stop - first, STRETCH)
    return (1 << high) - (1 << low)
