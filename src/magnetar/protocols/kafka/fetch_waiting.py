"""How long a fetch waits, and for what: it counts new data, once for each partition.

An append notes only the watches of its own partition, and once per turn of the event loop the fetch counts the new
data there.  Until the answer, no other partition of the fetch is looked at, however many it names.  Kafka's purgatory
looks at all of them each time.

A waiting fetch keeps only offsets and sums, and no entry in memory.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from magnetar.broker.usecases.handles import ReadablePartition

WAIT_MS_MAX: Final = 300_000
"""The longest wait, in milliseconds, even if a fetch asks for more: the most that librdkafka allows
(`fetch.wait.max.ms`), and less than `connections.max.idle.ms`, after which the connection would be closed.
"""


class _Watch:
    """One partition of a waiting fetch.  The partition calls it once for each durable entry."""

    __slots__ = ("_waiting", "bytes_left", "is_noted", "log_start", "next_offset", "partition")

    def __init__(
        self, waiting: "FetchWaiting", partition: ReadablePartition, offset: int, bytes_max: int
    ) -> None:
        self._waiting = waiting
        self.partition = partition
        self.log_start = offset  # while the log begins here or earlier, no wanted record was removed
        self.next_offset = offset  # everything before it has been counted
        self.bytes_left = bytes_max  # how many more bytes of this partition count
        self.is_noted = False

    def __call__(self) -> None:
        if not self.is_noted:
            self.is_noted = True
            self._waiting.note(self)


class FetchWaiting:
    """Calls `over` once: when there are `bytes_wanted` bytes, or as many entries as one answer may have, or when
    something has happened to one of the partitions.
    """

    __slots__ = (
        "_bytes_missing", "_entries_missing", "_is_scheduled", "_noted", "_over", "_reads_committed", "_watches",
    )  # fmt: skip

    def __init__(
        self, bytes_wanted: int, entries_max: int, reads_committed: bool, over: Callable[[], None]
    ) -> None:
        self._bytes_missing = bytes_wanted
        self._entries_missing = entries_max
        self._reads_committed = reads_committed
        self._over: Callable[[], None] | None = over
        self._watches: list[_Watch] = []
        self._noted: list[_Watch] = []
        self._is_scheduled = False

    def watch(self, partition: ReadablePartition, offset: int, bytes_max: int) -> None:
        """Wait for data from `offset` on, of which at most `bytes_max` bytes count."""
        watch = _Watch(self, partition, offset, bytes_max)
        self._watches.append(watch)
        partition.waiters.add(watch)
        if partition.log.high_watermark > offset:
            watch()  # existing data counts, too

    def note(self, watch: _Watch) -> None:
        """Note that something has happened to a partition.  One round may bring many entries, so they are counted
        after all.
        """
        self._noted.append(watch)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._count)

    def stop(self) -> None:
        """Stop waiting; `over` is not called any more."""
        self._over = None
        for watch in self._watches:
            watch.partition.waiters.discard(watch)
        self._watches.clear()
        self._noted.clear()

    def _count(self) -> None:
        self._is_scheduled = False
        noted, self._noted = self._noted, []
        for watch in noted:
            watch.is_noted = False
            if not self._count_in(watch) or self._bytes_missing <= 0 or self._entries_missing <= 0:
                over = self._over
                if over is not None:
                    over()
                return

    def _count_in(self, watch: _Watch) -> bool:
        """Count new data of `watch`; false if the fetch must look for itself."""
        partition = watch.partition
        log = partition.log
        if partition.is_closed or log.log_start > watch.log_start:
            return False
        end_offset = partition.last_stable_offset if self._reads_committed else log.high_watermark
        while watch.next_offset < end_offset and watch.bytes_left > 0:
            entries = log.read_cached(watch.next_offset, watch.bytes_left, end_offset)
            if entries is None:
                return False  # the cache does not hold all of the new data
            if not entries:
                break  # a batch that ends above the last stable offset
            size = min(sum(len(entry.payload) for entry in entries), watch.bytes_left)
            watch.next_offset = entries[-1].last_offset + 1
            watch.bytes_left -= size
            self._bytes_missing -= size
            self._entries_missing -= len(entries)
        if watch.bytes_left <= 0:
            partition.waiters.discard(watch)
        return True
