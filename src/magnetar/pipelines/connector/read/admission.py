"""How far the next micro-batch reaches: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`.

It decides from offsets alone, with the rules of Spark's `kafka` source.  It shares what a limit allows among partitions
by how much each has waiting.  A minimum holds a batch back until there is enough, or until the last batch is too long
ago.
"""

import math
from collections.abc import Mapping

from magnetar.pipelines.connector.read.positions import Offsets, TopicPartition


def waiting(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The number of offsets between the two, for partitions that have any."""
    return {
        partition: end - start[partition]
        for partition, end in latest.items()
        if end > start.get(partition, end)
    }


def at_most(
    rows_max: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> Offsets:
    """The end of a batch of about `rows_max` offsets: each partition gets its share, and at least one.

    `start` has every partition of `latest`.  The end is never after `latest` and never before `start`.
    """
    sizes = waiting(start, latest)
    total = sum(sizes.values())
    ends = {partition: max(end, start[partition]) for partition, end in latest.items()}
    if total <= rows_max:
        return ends
    for partition, size in sizes.items():
        share = rows_max * size / total
        ends[partition] = start[partition] + min(size, math.ceil(share) if share < 1 else math.floor(share))
    return ends


class Patience:
    """Whether to delay a batch smaller than `rows_min`; never longer than `delay_max_s` after the last one."""

    def __init__(self, rows_min: int, delay_max_s: float, now_s: float) -> None:
        self._rows_min = rows_min
        self._delay_max_s = delay_max_s
        self._last_batch_s = now_s

    def holds_back(self, rows: int, now_s: float) -> bool:
        """Whether to delay a batch of `rows`; False also notes that a batch begins."""
        if 0 < rows < self._rows_min and now_s - self._last_batch_s < self._delay_max_s:
            return True
        if rows:
            self._last_batch_s = now_s
        return False
