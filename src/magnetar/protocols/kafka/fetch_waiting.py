"""How long a fetch waits, and for what: it counts new data, once for each partition.

An append notes only the fetches that wait at its own partition, and once per turn of the event loop each counts the
new data there.  No other partition of the fetch is looked at, however many it names, also for its answer.  Kafka's
purgatory looks at all of them each time.

A waiting fetch keeps only offsets and sums, and no entry in memory.
"""

import asyncio
from collections.abc import Callable, Set
from typing import Final

from magnetar.broker.usecases.handles import ReadablePartition
from magnetar.wire.kafka.messages.fetch import FetchPartition

WAIT_MS_MAX: Final = 300_000
"""The longest wait, in milliseconds, even if a fetch asks for more: the most that librdkafka allows
(`fetch.wait.max.ms`), and less than `connections.max.idle.ms`, after which the connection would be closed.
"""


class _Count:
    """What a waiting fetch knows of a partition that something has happened to."""

    __slots__ = ("bytes_left", "log_start", "next_offset")

    def __init__(self, wanted: FetchPartition) -> None:
        self.log_start = (
            wanted.fetch_offset
        )  # while the log begins here or earlier, no wanted record was removed
        self.next_offset = wanted.fetch_offset  # everything before it has been counted
        self.bytes_left = wanted.partition_max_bytes  # how many more bytes of this partition count


class FetchWaiting:
    """Calls `over` once: when there are `bytes_wanted` bytes, or as many entries as one answer may have, or when
    something has happened to one of the partitions.

    It is itself what waits at its partitions, so that one at which nothing happens costs an element of a set.  Each
    partition calls it once for each durable entry.
    """

    __slots__ = (
        "_bytes_missing", "_counts", "_entries_missing", "_is_scheduled", "_noted", "_over", "_reads_committed",
        "_wanted",
    )  # fmt: skip

    def __init__(
        self, bytes_wanted: int, entries_max: int, reads_committed: bool, over: Callable[[], None]
    ) -> None:
        self._bytes_missing = bytes_wanted
        self._entries_missing = entries_max
        self._reads_committed = reads_committed
        self._over: Callable[[], None] | None = over
        self._wanted: dict[ReadablePartition, FetchPartition] = {}
        self._counts: dict[ReadablePartition, _Count] = {}
        self._noted: dict[ReadablePartition, None] = {}
        self._is_scheduled = False

    def watch(self, partition: ReadablePartition, wanted: FetchPartition) -> None:
        """Wait for data from the offset that is `wanted` on, of which at most `partition_max_bytes` count.  Of a
        partition that is wanted under two names, what comes from the lower offset on counts, once.
        """
        known = self._wanted.setdefault(partition, wanted)
        if known.fetch_offset > wanted.fetch_offset:
            self._wanted[partition] = wanted
        partition.waiters.add(self)
        if partition.log.high_watermark > wanted.fetch_offset:
            self(partition)  # existing data counts, too

    def touched(self) -> Set[ReadablePartition]:
        """The partitions to which something has happened since the fetch began to wait."""
        return self._counts.keys() | self._noted.keys()

    def __call__(self, partition: ReadablePartition) -> None:
        """Note that something has happened to a partition.  One round may bring many entries, so they are counted
        after all.
        """
        self._noted[partition] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._count)

    def stop(self) -> None:
        """Stop waiting; `over` is not called any more."""
        self._over = None
        for partition in self._wanted:
            partition.waiters.discard(self)

    def _count(self) -> None:
        self._is_scheduled = False
        over = self._over
        if over is None:
            return
        noted, self._noted = self._noted, {}
        for partition in noted:
            if partition not in self._counts:
                self._counts[partition] = _Count(self._wanted[partition])
        for partition in noted:
            if not self._count_in(partition) or self._bytes_missing <= 0 or self._entries_missing <= 0:
                over()
                return

    def _count_in(self, partition: ReadablePartition) -> bool:
        """Count new data of a partition; false if the fetch must look for itself."""
        count = self._counts[partition]
        log = partition.log
        if partition.is_closed or log.log_start > count.log_start:
            return False
        end_offset = partition.last_stable_offset if self._reads_committed else log.high_watermark
        while count.next_offset < end_offset and count.bytes_left > 0:
            entries = log.read_cached(count.next_offset, count.bytes_left, end_offset)
            if entries is None:
                return False  # the cache does not hold all of the new data
            if not entries:
                break  # a batch that ends above the last stable offset
            size = min(sum(len(entry.payload) for entry in entries), count.bytes_left)
            count.next_offset = entries[-1].last_offset + 1
            count.bytes_left -= size
            self._bytes_missing -= size
            self._entries_missing -= len(entries)
        if count.bytes_left <= 0:
            partition.waiters.discard(self)
        return True
