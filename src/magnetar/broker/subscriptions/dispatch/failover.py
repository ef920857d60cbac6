"""Many consumers, one of them active (Failover).

Consumers are sorted by priority level (0 first), then by name; only those of the first level count.  A partition of a
partitioned topic takes the consumer at the partition's index modulo their number, so that partitions spread.  The one
log of a non-partitioned topic takes the consumer whose point follows the topic's hash on a ring, with 100 points for
each consumer.

When another consumer becomes active, it starts at the first unacknowledged message, and all consumers are notified.
If it takes over from another one, this happens after a delay, in which nothing goes out.  So messages that the former
one is about to acknowledge do not go out twice.  More changes in that time do not make it longer.  When a consumer
joins and the active one stays, only the one that joins is notified.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from magnetar.broker.subscriptions.dispatch.exclusive import SingleActiveDispatcher
from magnetar.broker.subscriptions.dispatch.hashing import positive_hash, ring_points
from magnetar.broker.subscriptions.dispatch.model import Actions, ActiveChange, Consumer, Rewind, Unit
from magnetar.broker.subscriptions.model import SubscriptionType


class FailoverDispatcher(SingleActiveDispatcher):
    """One log of a topic: `partition_index` of a partitioned one, or None and the topic's full name."""

    type = SubscriptionType.FAILOVER
    wants_ticks = True

    def __init__(
        self,
        topic: str,
        partition_index: int | None,
        *,
        delay_ms: int = 0,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__()
        self._delay_ms = delay_ms
        self._now_ms = now_ms
        self._begins_ms: int | None = None  # when the one that takes over begins; None: there is no delay now
        self._topic_hash = positive_hash(topic.encode())
        self._partition_index = partition_index

    def add_consumer(self, consumer: Consumer) -> Actions:
        assert consumer not in self.consumers
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda one: (one.priority_level, one.name))
        return self._elect() or [ActiveChange(consumer, False)]

    def remove_consumer(self, consumer: Consumer) -> Actions:
        if consumer not in self.consumers:
            return []
        self.consumers.remove(consumer)
        if not self.consumers:
            self.active = self._begins_ms = None
            self.rewind()
            return [Rewind()]
        return self._elect()

    def wanted(self) -> int:
        return super().wanted() if self._begins_ms is None else 0

    def offer(self, units: Sequence[Unit], now_ms: int) -> Actions:
        # What the shell was reading when another consumer became active is read again.
        return super().offer(units, now_ms) if self._begins_ms is None else []

    def tick(self, now_ms: int) -> Actions:
        if self._begins_ms is None or 0 < self._begins_ms - now_ms <= self._delay_ms:
            return []  # more than the delay is left if the clock was set back
        self._begins_ms = None
        return [Rewind(), *self._told()]

    @property
    def next_tick_ms(self) -> int | None:
        return self._begins_ms

    def _told(self) -> Actions:
        return [ActiveChange(consumer, consumer is self.active) for consumer in self.consumers]

    def _elect(self) -> Actions:
        """Make the right consumer the active one; no actions when it is already."""
        chosen = self._choose()
        former, self.active = self.active, chosen
        if former is chosen:
            return []
        self.rewind()
        if former is None:
            return self._told()
        if self._delay_ms == 0:
            return [Rewind(), *self._told()]
        if self._begins_ms is None:
            self._begins_ms = self._now_ms() + self._delay_ms
        return [Rewind()]

    def _choose(self) -> Consumer:
        consumers = self.consumers
        first_level = consumers[0].priority_level
        candidates = [consumer for consumer in consumers if consumer.priority_level == first_level]
        if self._partition_index is not None:
            return candidates[self._partition_index % len(candidates)]
        # The successor of the topic's hash on the ring of all points; of two consumers at one point, the latter has it.
        after, first = None, None
        for consumer in candidates:
            points = ring_points(consumer.name, "")
            place = bisect_left(points, self._topic_hash)
            if place < len(points) and (after is None or points[place] <= after[0]):
                after = (points[place], consumer)
            if first is None or points[0] <= first[0]:
                first = (points[0], consumer)
        found = after or first
        assert found is not None
        return found[1]
