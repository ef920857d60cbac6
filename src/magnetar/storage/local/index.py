"""The sparse index of one segment: one point for every `INDEX_STEP_BYTES` of records, four numbers each.

A point describes what comes *before* its stretch (the last offset, the greatest timestamp).  So each of the three
look-ups is one bisection, which finds the only stretch that can hold the answer.  Timestamps of entries need not
ascend, but the greatest one so far does, and the first entry that reaches a timestamp is the one where this maximum
reaches it.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from magnetar.storage.segment_format import INDEX_STEP_BYTES, points_bytes, points_columns

_EMPTY: Final = (array("q"), array("q"), array("q"), array("q"))


class SparseIndex:
    __slots__ = ("entries", "offsets_before", "positions", "timestamps_before")

    def __init__(self, columns: "tuple[array[int], array[int], array[int], array[int]]" = _EMPTY) -> None:
        self.entries = columns[0][:]
        self.positions = columns[1][:]
        self.offsets_before = columns[2][:]
        self.timestamps_before = columns[3][:]

    def __len__(self) -> int:
        return len(self.entries)

    def wants_point(self, position: int) -> bool:
        """Whether an entry that begins at `position` begins a stretch."""
        return not self.positions or position - self.positions[-1] >= INDEX_STEP_BYTES

    def add(self, entry_id: int, position: int, offset_before: int, timestamp_before: int) -> None:
        self.entries.append(entry_id)
        self.positions.append(position)
        self.offsets_before.append(offset_before)
        self.timestamps_before.append(timestamp_before)

    def cut(self, entry_count: int) -> None:
        """Forget the stretches that begin at or after entry `entry_count`."""
        keep = bisect_left(self.entries, entry_count)
        for column in (self.entries, self.positions, self.offsets_before, self.timestamps_before):
            del column[keep:]

    def stretch_of_entry(self, entry_id: int) -> int:
        """The number of the stretch with `entry_id` in it."""
        return bisect_right(self.entries, entry_id) - 1

    def stretch_of_offset(self, offset: int) -> int:
        """The only stretch that can have the first entry with `last_offset` >= `offset`."""
        return max(bisect_left(self.offsets_before, offset) - 1, 0)

    def stretch_of_timestamp(self, timestamp_ms: int) -> int:
        """The only stretch that can have the first entry with `max_timestamp_ms` >= `timestamp_ms`."""
        return max(bisect_left(self.timestamps_before, timestamp_ms) - 1, 0)

    def to_bytes(self, first: int, last: int) -> bytes:
        """Points `first` (included) to `last` (not included) in their form on disk."""
        return points_bytes(
            (
                self.entries[first:last],
                self.positions[first:last],
                self.offsets_before[first:last],
                self.timestamps_before[first:last],
            )
        )

    def extend(self, data: bytes) -> None:
        """Add points in their form on disk."""
        columns = points_columns(data)
        self.entries.extend(columns[0])
        self.positions.extend(columns[1])
        self.offsets_before.extend(columns[2])
        self.timestamps_before.extend(columns[3])
