"""Pulsar's compaction: it writes the records that stay to a ledger beside the log, and does not change the log.

A run reads the ledger that the last run has left, and the log after its end, up to the last stable offset.  Its
ledger replaces that of the last run.  If there is not enough memory for all keys, a run takes several such steps.
Only one run is active at a time; others wait.

A subscription, `SUBSCRIPTION`, is at the end of what runs have looked at, and holds the rest of the log.  So
retention drops no record that compaction has not seen.  It moves after the new ledger is in place; if the process
dies in between, the subscription holds more than necessary.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, StorageError
from magnetar.base.tasks import Tasks
from magnetar.broker.compaction.compactor import Compactor, aborted_in, offsets_between
from magnetar.broker.compaction.entries import Entries
from magnetar.broker.compaction.errors import CompactionRunning
from magnetar.broker.compaction.run import Progress, note, rewrite
from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.log.model import CompactionState
from magnetar.broker.log.partition import Partition
from magnetar.wire.compaction import keys_in, latest_offsets

log: Final = logging.getLogger(__name__)

SUBSCRIPTION: Final = "__compaction"  # Pulsar's name


Hold = Callable[[str, Mapping[Partition, int]], Awaitable[None]]


class CompactorBeside:
    """See the module's text.

    It uses the settings, thread and counts of `compactor`, which is for Kafka's compaction, and closes it.  `hold`
    creates a subscription at an offset of a partition, or moves it forward to that (`SubscriptionAdmin.hold`).
    """

    def __init__(self, clock: Clock, compactor: Compactor, hold: Hold) -> None:
        self.left_bytes = 0  # of the present run
        self._clock = clock
        self._tombstones = compactor.tombstones
        self.settings = compactor.settings
        self._compactor = compactor
        self._counts = compactor.counts
        self._thread = compactor.thread
        self._hold = hold
        self._turn = asyncio.Lock()
        self._tasks = Tasks(log)

    def start(self, partition: Partition) -> asyncio.Task[None]:
        """Compact a partition in the background; returns the task.  `Partition.compaction` shows the progress.

        Raises:
            CompactionRunning
        """
        if partition.compaction.state is CompactionState.RUNNING:
            raise CompactionRunning("Compaction already in progress")
        partition.compaction.state = CompactionState.RUNNING
        return self._tasks.spawn(f"compact {partition}", self._run(partition))

    async def close(self) -> None:
        """End the present run and begin no more, also of Kafka's compaction, because the server stops."""
        self._compactor.close()
        self._tasks.cancel()
        await self._tasks.ended()

    def not_compacted_bytes(self, partition: Partition) -> int:
        """About how many stored bytes of a partition no run has looked at."""
        return backlog_bytes(partition.log, _begin(partition))

    async def hold_all(self, partition: Partition) -> None:
        """Create the subscription, so that retention drops nothing before a run has looked at it.

        Raises:
            SubscriptionBusy, MetadataError, UnknownTopic
        """
        await self._hold(SUBSCRIPTION, {partition: _begin(partition)})

    async def _run(self, partition: Partition) -> None:
        figures, counts = partition.compaction, self._counts
        async with self._turn:
            began_s = self._clock.monotonic()
            progress = Progress(self._clock, self.settings.bytes_per_second)
            try:
                removed = await self._compact(partition, progress)
            except BaseException as error:
                figures.state, figures.error = CompactionState.ERROR, str(error)
                figures.failed_ms = self._clock.now_ms()
                counts.failures += 1
                if not isinstance(error, BrokerError):
                    raise
                log.warning("compaction beside %s has failed: %s", partition.log.name, error)
            else:
                figures.state, figures.error = CompactionState.SUCCESS, ""
                figures.succeeded_ms = self._clock.now_ms()
                figures.removed_messages = removed
                counts.runs += 1
                counts.removed_records += removed
            finally:
                self.left_bytes = 0
                seconds = self._clock.monotonic() - began_s
                figures.duration_ms = round(seconds * 1000)
                counts.read_bytes += progress.noted_bytes + progress.read_bytes
                counts.written_bytes += progress.written_bytes
                counts.seconds += seconds

    async def _compact(self, partition: Partition, progress: Progress) -> int:
        """Compact a partition; returns how many messages the run has removed.

        Raises:
            EntryCorrupt, StorageError, MetadataError, UnknownTopic: the steps that are complete stay.
        """
        if partition.uncertain is not None:
            raise StorageError(partition.problem)
        ledger_log = partition.log
        begin, end = _begin(partition), partition.last_stable_offset
        await self._hold(SUBSCRIPTION, {partition: begin})
        removed = 0
        # DeleteRecords may move the log's start at any time; what is below it cannot be read any more.
        while (begin := max(begin, ledger_log.log_start)) < end:
            former_bytes = 0 if ledger_log.compacted is None else ledger_log.compacted.size_bytes
            self.left_bytes = 2 * backlog_bytes(ledger_log, begin) + former_bytes
            begin, gone = await self._step(partition, begin, end, progress)
            removed += gone
            await self._hold(SUBSCRIPTION, {partition: begin})
        log.info("compacted beside %s: to=%d removed=%d", ledger_log.name, end, removed)
        return removed

    async def _step(self, partition: Partition, begin: int, end: int, progress: Progress) -> tuple[int, int]:
        """Compact from `begin` on, as far as there is memory for keys; returns the end, and how many messages were
        removed.
        """
        ledger_log, former = partition.log, partition.log.compacted
        keys_max = min(keys_in(self.settings.table_bytes), await offsets_between(ledger_log, begin, end))
        expected_bytes = backlog_bytes(ledger_log, begin)
        latest = await self._thread.run(lambda: latest_offsets(keys_max, expected_bytes))
        aborted = await aborted_in(partition, ledger_log.ledgers_between(begin, end))
        now_ms = self._clock.now_ms()
        entries = await self._thread.run(lambda: Entries(latest, aborted, now_ms, None))
        await note(ledger_log, begin, end, entries, self._thread, progress)
        writer = await self._tombstones.make()
        try:
            if former is not None:
                await rewrite(former, 0, former.end, entries, writer, self._thread, progress, None)
            epoch = ledger_log.epoch_at(entries.end - 1)
            await rewrite(ledger_log, begin, entries.end, entries, writer, self._thread, progress, epoch)
        except BaseException:
            await self._tombstones.unmake(writer)
            raise
        await ledger_log.keep_beside(writer)
        return entries.end, entries.removed


def _begin(partition: Partition) -> int:
    """The first offset that no run has looked at."""
    compacted = partition.log.compacted
    return max(partition.log.log_start, 0 if compacted is None else compacted.end)
