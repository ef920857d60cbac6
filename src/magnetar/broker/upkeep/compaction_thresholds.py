"""Starts Pulsar's compaction when a partition has got as many bytes since the last run as its topic's policy says.

From the first pass that finds such a policy, retention keeps everything in the topic until compaction has looked at
it.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.upkeep import Upkeep
from magnetar.broker.compaction.beside import CompactorBeside
from magnetar.broker.compaction.errors import CompactionRunning
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.topics.registry import TopicRegistry

log: Final = logging.getLogger(__name__)

_TOPICS_AT_ONCE: Final = 200  # then the event loop serves clients before the next ones


class CompactionThresholds:
    """See the module's text."""

    def __init__(
        self,
        upkeep: Upkeep,
        topics: TopicRegistry,
        namespaces: Namespaces,
        beside: CompactorBeside,
    ) -> None:
        self._upkeep = upkeep
        self._topics = topics
        self._namespaces = namespaces
        self._beside = beside

    def start(self) -> None:
        """Begin to run once in each interval."""
        interval_s = self._beside.settings.threshold_interval_s
        self._upkeep.every(interval_s, "compaction thresholds", self.run_once)

    async def run_once(self) -> None:
        """Start the compactions that are due."""
        for count, topic in enumerate(self._topics):
            if count % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            threshold = self._namespaces.policies_of(topic.name).compaction_threshold_bytes
            if threshold is None:
                threshold = self._beside.settings.threshold_bytes
            if not threshold or not topic.name.persistent:
                continue
            for partition in topic.open_partitions:
                try:
                    await self._beside.hold_all(partition)
                except BrokerError as error:
                    log.warning(
                        "the server cannot keep what is not compacted yet of %s: %s",
                        partition.log.name,
                        error,
                    )
                if self._beside.not_compacted_bytes(partition) > threshold:
                    with suppress(CompactionRunning):
                        self._beside.start(partition)
