"""What policies, and resource groups, mean for partitions that are open: applied when they change.

Everything else is asked of the policies when it is needed; what is asked for with each message lies in the partition.
"""

from collections.abc import Callable, Iterable

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import Policies
from magnetar.broker.quotas.dispatch_limit import DispatchLimit, Together, together
from magnetar.broker.quotas.rate_limit import RateLimit, at_rate
from magnetar.broker.quotas.resource_groups import ResourceGroups
from magnetar.broker.quotas.subscribe_limit import SubscribeLimit
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.topic import Topic


class PartitionLimits:
    """See the module's text."""

    def __init__(
        self,
        clock: Clock,
        policies_of: Callable[[TopicName], Policies],
        groups: ResourceGroups,
        subscriptions: Subscriptions,
    ) -> None:
        self._clock = clock
        self._policies_of = policies_of
        self._groups = groups
        self._subscriptions = subscriptions

    def apply_to(self, topics: Iterable[Topic]) -> None:
        """To what is open of these; what is opened later asks for itself."""
        former: dict[DispatchLimit, None] = {}
        for topic in topics:
            for partition in topic.open_partitions:
                former.update(dict.fromkeys(self.apply(partition)))
        for limit in former:
            limit.close()  # what waits for it besides subscriptions: fetches

    def apply(self, partition: Partition) -> list[DispatchLimit]:
        """To one; the limits that hold for it no longer, at which readers may be waiting."""
        policies, clock = self._policies_of(partition.topic.name), self._clock
        shared = self._groups.limits(policies.resource_group)
        partition.deduplicate(policies.deduplication)
        partition.publish_limit = at_rate(policies.publish_rate, partition.publish_limit, RateLimit, clock)
        partition.shared_publish_limit = shared.publish
        partition.subscribe_limit = at_rate(
            policies.subscribe_rate, partition.subscribe_limit, SubscribeLimit, clock
        )
        former = partition.dispatch_limit
        own = at_rate(policies.dispatch_rate, partition.own_dispatch_limit, DispatchLimit, clock)
        partition.own_dispatch_limit = own
        partition.dispatch_limit = together(own, shared.dispatch, former)
        self._subscriptions.apply_limits(partition)
        had = (former.own, former.shared) if isinstance(former, Together) else (former,)
        return [one for one in had if one is not None and one is not own and one is not shared.dispatch]
