"""Bundles: the ranges into which the hash space of a namespace is cut.

They are cut, written and split as Pulsar's are.  The space ends at 0xffffffff, which belongs to the last range; any
other range ends before its upper boundary.  A topic, or a partition of one, falls into the range that has the checksum
of its full name.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from zlib import crc32

LAST: Final = 0xFFFF_FFFF  # the greatest position


def position_of(full_name: str) -> int:
    """The place of a topic, or of a partition, in its namespace's hash space."""
    return crc32(full_name.encode())


def boundaries_of(count: int) -> list[int]:
    """Where `count` ranges of about the same size begin, and where the last one ends."""
    step = (LAST + 1) // count
    return [*range(0, step * count, step), LAST]


def written(boundary: int) -> str:
    """A boundary as Pulsar writes it."""
    return f"0x{boundary:08x}"


@dataclass(frozen=True, slots=True, order=True)
class Bundle:
    """One range of `namespace` (`tenant/namespace`)."""

    namespace: str
    low: int
    high: int

    @property
    def range(self) -> str:
        return f"{written(self.low)}_{written(self.high)}"

    @property
    def middle(self) -> int:
        return self.low + (self.high - self.low) // 2

    def contains(self, position: int) -> bool:
        return self.low <= position and (position < self.high or self.high == LAST)

    def split(self, boundary: int) -> tuple["Bundle", "Bundle"]:
        """The two ranges that a new boundary makes of this one."""
        assert self.low < boundary < self.high, (self, boundary)
        return Bundle(self.namespace, self.low, boundary), Bundle(self.namespace, boundary, self.high)


def bundles_of(namespace: str, count: int) -> list[Bundle]:
    """The ranges of a namespace that was cut into `count` and not split since."""
    boundaries = boundaries_of(count)
    return [Bundle(namespace, low, high) for low, high in pairwise(boundaries)]


def bundle_at(namespace: str, written_range: str) -> Bundle:
    """What `Bundle.range` was written of."""
    low, _, high = written_range.partition("_")
    return Bundle(namespace, int(low, 16), int(high, 16))
