"""Looks which log is the dirtiest of those that are due, and has it compacted; then looks again, until none is.

What is due, and what of it, is decided in `compaction/plan.py`.  A run goes only as far as the memory of producers is
stored, which is done before it; so a start never reads what was rewritten for it.  A log with an entry that cannot be
read is left alone until that entry has gone by retention, or the server is started again; any other failure is tried
again at the next look.
"""

import asyncio
import logging
from typing import Final

from magnetar.base.config import LONG_MAX
from magnetar.base.errors import BrokerError, EntryCorrupt
from magnetar.base.expiry_time import ExpiryTime
from magnetar.base.upkeep import Upkeep
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.compaction.plan import Plan, is_due, plan
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.upkeep.snapshots import ProducerSnapshots

log: Final = logging.getLogger(__name__)

_TOPICS_AT_ONCE: Final = 200  # between two of these the event loop serves its clients


class CompactionPass:
    """See the module's text."""

    def __init__(
        self,
        upkeep: Upkeep,
        expiry_time: ExpiryTime,
        topics: TopicRegistry,
        snapshots: ProducerSnapshots,
        compactor: Compactor,
    ) -> None:
        self._upkeep = upkeep
        self._expiry_time = expiry_time
        self._topics = topics
        self._snapshots = snapshots
        self._compactor = compactor
        self._settings = compactor.settings
        self._damaged: dict[str, int] = {}  # by log: where it began when an entry of it could not be read

    def start(self) -> None:
        """Begin to look, once in each interval; unless no log is to be compacted."""
        if self._settings.is_on:
            self._upkeep.every(self._settings.interval_ms / 1000, "compaction", self.run_once)

    @property
    def damaged_count(self) -> int:
        """Logs that are left alone, as they cannot be read."""
        return len(self._damaged)

    async def run_once(self) -> None:
        """Compact until nothing is due."""
        tried: set[Partition] = set()
        while (found := await self._dirtiest(tried)) is not None:
            partition, wanted = found
            tried.add(partition)
            log_start = partition.log.log_start
            if partition.recovers_from < wanted.end:
                await self._snapshots.store([partition])
            covered = plan(partition, self._expiry_time.now_ms(), partition.recovers_from)
            if covered is None:
                continue
            try:
                await self._compactor.run(partition, covered, self._expiry_time.now_ms())
            except EntryCorrupt as error:
                if partition.log.log_start == log_start:
                    self._damaged[partition.log.name] = log_start
                    log.error(
                        "the server does not compact %s, because it cannot read it: %s",
                        partition.log.name,
                        error,
                    )
            except BrokerError as error:
                if not partition.is_closed:
                    log.warning("compaction of %s waits: %s", partition.log.name, error)

    async def _dirtiest(self, tried: set[Partition]) -> tuple[Partition, Plan] | None:
        """Of the logs that are due and were not tried, the one with the largest share of what was not compacted."""
        now_ms = self._expiry_time.now_ms()
        best: tuple[Partition, Plan] | None = None
        for count, topic in enumerate(self._topics):
            if count % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            config = topic.config
            if not config.compact:
                continue
            for partition in topic.open_partitions:
                partition.log.roll_if_old(config.compaction_lag_max_ms)
                if partition in tried or self._is_damaged(partition):
                    continue
                wanted = None if partition.uncertain else plan(partition, now_ms, LONG_MAX)
                if wanted is None or not is_due(wanted, config):
                    continue
                if best is None or wanted.dirty_share > best[1].dirty_share:
                    best = partition, wanted
        return best

    def _is_damaged(self, partition: Partition) -> bool:
        began = self._damaged.get(partition.log.name)
        if began is not None and partition.log.log_start > began:
            del self._damaged[partition.log.name]
            return False
        return began is not None
