"""The limit on idempotent producers that all partitions together remember (`max.concurrent.producer.ids`).

A client may create a new producer for every batch, and each is remembered for a day.  So once a second, if there are
too many, the partitions with the most producers forget those that have not written for longest.  A client that floods
one partition therefore does not affect producers of others.  A forgotten producer that writes again counts as new, as
after `producer.id.expiration.ms`; one with an open transaction is not forgotten.

With deduplication Pulsar's producers are known by names that they choose: each partition remembers as many of them as
Pulsar does.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

from magnetar.broker.log.deduplication import PRODUCERS_MAX
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.registry import TopicRegistry

log: Final = logging.getLogger(__name__)

INTERVAL_S: Final = 1.0
_TOPICS_AT_ONCE: Final = 1000  # then the event loop serves clients before the next ones


def level(counts: Iterable[int], total_max: int) -> int:
    """The most that each may keep so that all together keep at most `total_max`; one that has fewer keeps all."""
    ascending = sorted(counts)
    left = total_max
    for position, count in enumerate(ascending):
        share = left // (len(ascending) - position)
        if count > share:
            return share
        left -= count
    return ascending[-1] if ascending else 0


class ProducerLimit:
    """See the module's text."""

    def __init__(self, topics: TopicRegistry, producers_max: int) -> None:
        self._topics = topics
        self._producers_max = producers_max
        self._was_over = False

    async def enforce(self) -> None:
        partitions: list[Partition] = []  # those that have producers
        for count, topic in enumerate(self._topics, 1):
            if count % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            for partition in topic.open_partitions:
                if len(partition.producers):
                    partitions.append(partition)
                if partition.deduplication is not None:
                    partition.deduplication.forget_surplus(PRODUCERS_MAX, partition.log.high_watermark)
        over = sum(len(partition.producers) for partition in partitions) - self._producers_max
        if over > 0:
            if not self._was_over:
                log.warning(
                    "there are %d idempotent producers more than max.concurrent.producer.ids: the server forgets"
                    " those whose last write is the oldest",
                    over,
                )
            self._forget(partitions)
        self._was_over = over > 0

    def _forget(self, partitions: Sequence[Partition]) -> None:
        kept = level((len(partition.producers) for partition in partitions), self._producers_max)
        for partition in partitions:
            surplus = len(partition.producers) - kept
            if surplus > 0:
                partition.producers.forget_oldest(
                    surplus, partition.log.high_watermark, partition.transactions.is_open
                )
