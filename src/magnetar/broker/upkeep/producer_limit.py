"""How many idempotent producers are remembered, over all partitions (`max.concurrent.producer.ids`).

A client makes a new producer with every batch if it likes, and each is remembered for a day.  So once a second, where
there are too many, the partitions that have most of them give up those that have not written for longest: a client that
floods one partition costs the producers of the others nothing.  A producer that is forgotten and writes again is taken
for new, as after `producer.id.expiration.ms`; one with an open transaction is not forgotten.

Pulsar's producers, where their duplicates are looked for, are known by names that they choose: each partition remembers
as many of them as Pulsar does.
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
_TOPICS_AT_ONCE: Final = 1000  # between two of these the event loop serves its clients


def level(counts: Iterable[int], total_max: int) -> int:
    """The most that each may keep so that all together keep `total_max` at most; one that has fewer keeps all."""
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
        partitions: list[Partition] = []  # that have producers
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
