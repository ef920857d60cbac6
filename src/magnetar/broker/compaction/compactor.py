"""Kafka's compaction: it rewrites the ledgers of a log, without the records that go.

Only one run is active at a time.  A run ends early if the log is deleted, if retention deletes a ledger that it
reads, or if the topic's policy changes.  That does no harm: the ledgers that it has replaced stay.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError
from magnetar.base.settings_compaction import CompactionSettings
from magnetar.broker.compaction.entries import Entries
from magnetar.broker.compaction.plan import Plan, grouped
from magnetar.broker.compaction.run import CompactionThread, Progress, note, rewrite
from magnetar.broker.log.model import AbortedRange
from magnetar.broker.log.partition import Partition
from magnetar.ledger.chain import LedgerInfo
from magnetar.ledger.readable_log import ReadableLog
from magnetar.ledger.tombstones import Tombstones
from magnetar.wire.compaction import keys_in, latest_offsets

log: Final = logging.getLogger(__name__)


class CompactionCounts:
    """Counts since the start, over all logs; bytes are stored bytes."""

    def __init__(self) -> None:
        self.runs = 0
        self.failures = 0
        self.read_bytes = 0
        self.written_bytes = 0
        self.won_bytes = 0
        self.removed_records = 0
        self.seconds = 0.0


class Compactor:
    """See the module's text."""

    def __init__(self, clock: Clock, tombstones: Tombstones, settings: CompactionSettings) -> None:
        self.counts = CompactionCounts()
        self.left_bytes = 0  # of the present run
        self.settings = settings
        self.tombstones = tombstones
        self._clock = clock
        self.thread = CompactionThread(clock.monotonic)  # Pulsar's compaction uses it, too

    def close(self) -> None:
        """Begin no more runs, because the server stops."""
        self.thread.close()

    async def run(self, partition: Partition, plan: Plan, now_ms: int) -> None:
        """Compact the ledgers of `plan`, as far as there is memory for their keys.

        Raises:
            EntryCorrupt, StorageError, MetadataError: the run has ended early.
        """
        began_s = self._clock.monotonic()
        progress = Progress(self._clock, self.settings.bytes_per_second)
        won_before = self.counts.won_bytes
        try:
            removed = await self._run(partition, plan, now_ms, progress)
        except BrokerError:
            self.counts.failures += 1
            raise
        finally:
            self.left_bytes = 0
            self.counts.read_bytes += progress.noted_bytes + progress.read_bytes
            self.counts.written_bytes += progress.written_bytes
            self.counts.seconds += self._clock.monotonic() - began_s
        self.counts.runs += 1
        log.info(
            "compacted %s: from=%d to=%d removed=%d read_bytes=%d won_bytes=%d seconds=%.1f",
            partition.log.name,
            plan.begin,
            partition.log.cleaned,
            removed,
            progress.read_bytes,
            self.counts.won_bytes - won_before,
            self._clock.monotonic() - began_s,
        )

    async def _run(self, partition: Partition, plan: Plan, now_ms: int, progress: Progress) -> int:
        ledger_log, config = partition.log, partition.topic.config
        keys_max = min(
            keys_in(self.settings.table_bytes), await offsets_between(ledger_log, plan.begin, plan.end)
        )
        total = plan.dirty_bytes
        latest = await self.thread.run(lambda: latest_offsets(keys_max, total))
        aborted = await aborted_in(partition, plan.ledgers)
        entries = await self.thread.run(lambda: Entries(latest, aborted, now_ms, config.delete_retention_ms))
        self.left_bytes = 2 * plan.dirty_bytes + plan.clean_bytes
        await note(ledger_log, plan.begin, plan.end, entries, self.thread, progress)
        for group in grouped(plan.ledgers, config.segment_bytes):
            if group[0].first_offset >= entries.end:
                break
            before = entries.removed
            is_replaced = await self._rewrite(partition, group, entries, progress)
            self.left_bytes -= sum(info.size_bytes for info in group)
            if not is_replaced:
                break
            self.counts.removed_records += entries.removed - before
        return entries.removed

    async def _rewrite(
        self, partition: Partition, group: list[LedgerInfo], entries: Entries, progress: Progress
    ) -> bool:
        """Replace a group of ledgers by one; false if the log has lost some of them meanwhile, or is no longer
        compacted.
        """
        ledger_log = partition.log
        begin, end = max(group[0].first_offset, ledger_log.log_start), group[-1].end_offset
        cleaned = min(entries.end, end)
        removed_before, entries.has_changed = entries.removed, False
        writer = await self.tombstones.make()
        try:
            epoch = ledger_log.epoch_at(end - 1)
            await rewrite(ledger_log, begin, end, entries, writer, self.thread, progress, epoch)
        except BaseException:
            await self.tombstones.unmake(writer)
            raise
        if not partition.topic.config.compact:
            await self.tombstones.unmake(writer)
            return False
        if len(group) == 1 and entries.removed == removed_before and not entries.has_changed:
            await self.tombstones.unmake(writer)
            return await ledger_log.replace(group, None, cleaned)
        before = sum(info.size_bytes for info in group)
        is_replaced = await ledger_log.replace(group, writer, cleaned)
        if is_replaced:
            self.counts.won_bytes += before - writer.stat.size_bytes
        return is_replaced


async def offsets_between(ledger_log: ReadableLog, begin: int, end: int) -> int:
    """How many offsets the entries from `begin` to `end` take.  If the log starts inside an entry, all of that entry
    counts, because all of its keys are noted.
    """
    first = await ledger_log.entry_at(begin)
    return end - (begin if first is None else min(begin, first.base_offset))


async def aborted_in(partition: Partition, ledgers: list[LedgerInfo]) -> Collection[AbortedRange]:
    """The aborted transactions that have records in these ledgers, collected in pieces, because there may be very
    many.
    """
    found: dict[AbortedRange, None] = {}
    for info in ledgers:
        found |= dict.fromkeys(partition.transactions.aborted_between(info.first_offset, info.end_offset))
        await asyncio.sleep(0)
    return found
