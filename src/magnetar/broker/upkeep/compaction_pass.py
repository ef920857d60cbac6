"""Has the dirtiest of the logs that are due compacted, and repeats this until none is due.

`compaction/plan.py` decides which logs are due, and which part of them.  A run goes only as far as the stored
snapshot of producers, which is stored before the run, so a start never reads compacted entries for that.  A log with
an entry that cannot be read is not compacted until retention has removed that entry or the server restarts.  After
any other failure the next pass tries again.
"""

import asyncio
import logging
from typing import Final

from magnetar.base.config import LONG_MAX
from magnetar.base.errors import BrokerError, EntryCorrupt
from magnetar.base.times import Times
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.compaction.plan import Plan, is_due, plan
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.upkeep.snapshots import ProducerSnapshots

log: Final = logging.getLogger(__name__)

_TOPICS_AT_ONCE: Final = 200  # then the event loop serves clients before the next ones


class CompactionPass:
    """See the module's text."""

    def __init__(
        self,
        times: Times,
        topics: TopicRegistry,
        snapshots: ProducerSnapshots,
        compactor: Compactor,
    ) -> None:
        self._upkeep = times.upkeep
        self._expiry_time = times.expiry
        self._topics = topics
        self._snapshots = snapshots
        self._compactor = compactor
        self._settings = compactor.settings
        self._damaged: dict[str, int] = {}  # by log: its start when an entry could not be read

    def start(self) -> None:
        """Begin to run once in each interval, unless compaction is off."""
        if self._settings.is_on:
            self._upkeep.every(self._settings.interval_ms / 1000, "compaction", self.run_once)

    @property
    def damaged_count(self) -> int:
        """How many logs are not compacted because they cannot be read."""
        return len(self._damaged)

    async def run_once(self) -> None:
        """Compact until no log is due."""
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
        """Of the due logs that were not tried, the one with the largest share of bytes that were not compacted."""
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
