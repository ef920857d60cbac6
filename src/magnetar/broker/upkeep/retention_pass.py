"""One pass over all partitions: it rolls and trims logs, and forgets producers that have long been silent.

`retention.py` decides what may be dropped from a partition; `base/expiry_time.py` has the time by which data is old.
"""

import asyncio
import logging
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.times import Times
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.retention import trim_limits
from magnetar.broker.upkeep.settings import UpkeepSettings
from magnetar.broker.upkeep.topics_in_use import TopicsInUse

log = logging.getLogger(__name__)

_TOPICS_AT_ONCE: Final = 200  # then clients are served


class RetentionPass:
    """See the module's text."""

    def __init__(self, times: Times, in_use: TopicsInUse, settings: UpkeepSettings) -> None:
        self._upkeep = times.upkeep
        self._expiry_time = times.expiry
        self._topics = in_use.topics
        self._namespaces = in_use.namespaces
        self._producers = in_use.producers
        self._cursors = in_use.cursors
        self._interval_ms = settings.retention_check_interval_ms
        self._producer_id_expiration_ms = settings.producer_id_expiration_ms

    def start(self) -> None:
        """Begin to run once in each interval."""
        self._upkeep.every(self._interval_ms / 1000, "retention", self.run_once)

    async def run_once(self) -> None:
        """One pass: roll old ledgers, drop what no rule keeps, forget idle producers."""
        unforeseen: Exception | None = None
        for count, topic in enumerate(self._topics):
            if count % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            for partition in topic.open_partitions:
                try:
                    await self.retain(topic, partition)
                except BrokerError as error:
                    log.warning("retention of %s waits: %s", partition.log.name, error)
                except Exception as error:  # noqa: BLE001  the other partitions' disk space must not wait for it
                    unforeseen = unforeseen or error
        if unforeseen is not None:
            raise unforeseen

    async def retain(self, topic: Topic, partition: Partition) -> None:
        """One pass for one partition.  Raises StorageError or MetadataError."""
        now_ms = self._expiry_time.now_ms()
        partition.log.roll_if_old()
        partition.producers.expire(now_ms - self._producer_id_expiration_ms)
        if partition.deduplication is not None:
            connected = {producer.name for producer in self._producers.find(partition) or ()}
            partition.deduplication.expire(now_ms, connected)
        policy = self._namespaces.policies_of(topic.name).retention
        held_from = self._cursors.held_from(topic.name.full, partition.index)
        limits = trim_limits(topic.config, topic.overrides, policy, held_from)
        if limits is not None and partition.is_linked:
            # The last entry of a copy says where the copy ends (`log/linked_entries.py`).
            last = max(partition.log.next_offset - 1, 0)
            limits = limits._replace(held_from=last if held_from is None else min(held_from, last))
        if limits is not None:
            await partition.log.trim(None, *limits, now_ms=now_ms)
        partition.forget_deleted()
