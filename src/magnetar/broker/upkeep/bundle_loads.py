"""How much a broker of a cluster has to do for each of its bundles: reported for the leader, which balances by it.

A load counts what is appended, in units of what a bundle costs that nothing is written to (`ownership/assignment.py`).
It follows a change within some intervals, because bundles must not move for a moment's work.  A broker reports all of
its bundles at once, and only if one of them has changed enough to matter.
"""

from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.upkeep import Upkeep
from magnetar.broker.cluster.bundles import Bundle
from magnetar.broker.cluster.ownership.records import alive, put_loads
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.metadata.store import MetadataStore

INTERVAL_S: Final = 10.0
UNIT_BYTES_PER_S: Final = 64 << 10  # a bundle that takes so much weighs as much as two that take nothing
_FOLLOWS: Final = 0.5  # of the way to the load of the last interval
_CHANGED: Final = 0.2  # the part of a load, or else the units, from which on a change is reported


class BundleLoads:
    """See the module's text."""

    def __init__(self, seat: Seat, topics: TopicRegistry, metadata: MetadataStore, clock: Clock) -> None:
        self._seat = seat
        self._topics = topics
        self._metadata = metadata
        self._clock = clock
        self._looked_s = clock.monotonic()
        self._bytes: dict[Partition, int] = {}  # appended when it was looked at last
        self._loads: dict[Bundle, float] = {}
        self._reported: dict[Bundle, float] = {}

    def start(self, upkeep: Upkeep) -> None:
        upkeep.every(INTERVAL_S, "loads of bundles", self.report)

    async def report(self) -> None:
        """Look at all partitions, and report if that is news.

        Raises:
            MetadataError: it is reported next time.
        """
        self._look()
        if self._is_news():
            loads = {bundle: round(load, 1) for bundle, load in self._loads.items()}
            name = self._seat.here.name
            await self._metadata.commit([alive(name), put_loads(name, loads)])
            self._reported = loads

    def _look(self) -> None:
        now_s = self._clock.monotonic()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        seen = self._bytes
        self._bytes = {}
        grown = dict.fromkeys(self._seat.served, 0)
        for topic in self._topics:
            for partition in topic.open_partitions:
                bundle = self._seat.bundle_of(topic.name.namespace_name, topic.pulsar_name(partition.index))
                if bundle in grown:
                    appended = self._bytes[partition] = partition.log.appended_bytes
                    grown[bundle] += appended - seen.get(partition, 0)
        self._loads = {
            bundle: self._followed(bundle, size / max(passed_s, 1.0) / UNIT_BYTES_PER_S)
            for bundle, size in grown.items()
        }

    def _followed(self, bundle: Bundle, load: float) -> float:
        """A bundle that comes from another broker begins with what that has reported of it."""
        before = self._loads.get(bundle, self._seat.view.loads.get(bundle, 0.0))
        return before + (load - before) * _FOLLOWS

    def _is_news(self) -> bool:
        return self._loads.keys() != self._reported.keys() or any(
            abs(load - self._reported[bundle]) > _CHANGED * max(load, 1.0)
            for bundle, load in self._loads.items()
        )
