"""Many consumers, one of them active (Failover).

Consumers are sorted by priority level (0 first), then by name; only those of the first level count.  A partition of a
partitioned topic takes the one at its index modulo their number, so that partitions spread; the one log of a
non-partitioned topic takes the consumer whose point follows the topic's hash on a ring of 100 points for each.

When another consumer becomes active, it starts at the first unacknowledged message, and all consumers are notified.
When one joins and the active one stays, only the one that joins is notified.
"""

from bisect import bisect_left

from magnetar.broker.subscriptions.dispatch.exclusive import SingleActiveDispatcher
from magnetar.broker.subscriptions.dispatch.hashing import positive_hash, ring_points
from magnetar.broker.subscriptions.dispatch.model import Actions, ActiveChange, Consumer, Rewind
from magnetar.broker.subscriptions.model import SubscriptionType


class FailoverDispatcher(SingleActiveDispatcher):
    """One log of a topic: `partition_index` of a partitioned one, or None and the topic's full name."""

    type = SubscriptionType.FAILOVER

    def __init__(self, topic: str, partition_index: int | None) -> None:
        super().__init__()
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
            self.active = None
            self.rewind()
            return [Rewind()]
        return self._elect()

    def _elect(self) -> Actions:
        """Make the right consumer the active one; no actions when it is already."""
        chosen = self._choose()
        former, self.active = self.active, chosen
        if former is chosen:
            return []
        self.rewind()
        told: Actions = [ActiveChange(consumer, consumer is chosen) for consumer in self.consumers]
        return told if former is None else [Rewind(), *told]

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
