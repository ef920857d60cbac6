"""Ranges of offsets, half-open, as ascending lists that do not overlap.

A client may acknowledge a batch of a million messages one by one, or every second of them at once.  To take few ranges
away costs a binary search each; to take many away costs one pass.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

OffsetRange = tuple[int, int]

_start, _end = itemgetter(0), itemgetter(1)
FEW = 16  # so many times fewer cuts than ranges: search for each


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Any ranges as ascending ones that do not overlap."""
    found: list[OffsetRange] = []
    end = -1
    for start, stop in sorted(ranges):
        if start <= end:
            if stop > end:
                found[-1] = (found[-1][0], stop)
                end = stop
        elif stop > start:
            found.append((start, stop))
            end = stop
    return found


def without(ranges: Sequence[OffsetRange], cuts: Sequence[OffsetRange]) -> tuple[list[OffsetRange], int]:
    """What is left of `ranges` without `cuts`, and how many offsets are gone; a list that is given may be changed."""
    if not ranges:
        return [], 0
    low = bisect_right(cuts, ranges[0][0], key=_end)
    high = bisect_left(cuts, ranges[-1][1], key=_start)
    if FEW * (high - low) < len(ranges):
        left = ranges if isinstance(ranges, list) else list(ranges)
        return left, sum([_cut_one(left, *cuts[index]) for index in range(low, high)])
    return _swept(ranges, cuts, low, high)


def _cut_one(ranges: list[OffsetRange], start: int, stop: int) -> int:
    low = bisect_right(ranges, start, key=_end)
    high = bisect_left(ranges, stop, key=_start)
    if low >= high:
        return 0
    pieces = []
    first, last = ranges[low][0], ranges[high - 1][1]
    gone = sum([end - begin for begin, end in ranges[low:high]])
    if first < start:
        pieces.append((first, start))
        gone -= start - first
    if stop < last:
        pieces.append((stop, last))
        gone -= last - stop
    ranges[low:high] = pieces
    return gone


def _swept(
    ranges: Sequence[OffsetRange], cuts: Sequence[OffsetRange], index: int, last: int
) -> tuple[list[OffsetRange], int]:
    left: list[OffsetRange] = []
    gone = 0
    for low, high in ranges:
        at = low
        while index < last:
            start, stop = cuts[index]
            if start >= high:
                break
            if at < start:
                left.append((at, start))
                at = start
            if stop > at:
                gone += min(stop, high) - at
                at = stop
            if stop > high:
                break  # it reaches into the next range, too
            index += 1
        if at < high:
            left.append((at, high))
    return left, gone
