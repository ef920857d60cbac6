"""Applies policies and resource groups to open partitions when they change.

A partition keeps the values that each message needs; all other code asks the policies when it needs them.  A change
may concern any number of partitions, so other clients get their turn after every few.  Each partition gets the
policies of that moment, so two changes that are applied at the same time have the same result.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName
from magnetar.base.tasks import Tasks
from magnetar.broker.log.partition import Partition
from magnetar.broker.quotas.dispatch_limit import DispatchLimit, Together, together
from magnetar.broker.quotas.rate_limit import RateLimit, at_rate
from magnetar.broker.quotas.resource_groups import ResourceGroups
from magnetar.broker.quotas.subscribe_limit import SubscribeLimit
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep.topics_in_use import TopicsInUse

_AT_ONCE: Final = 32  # partitions in one step: their readers continue, and may read at once


class PartitionLimits:
    """See the module's text."""

    def __init__(
        self,
        clock: Clock,
        in_use: TopicsInUse,
        groups: ResourceGroups,
        tasks: Tasks,
    ) -> None:
        self._clock = clock
        self._namespaces = in_use.namespaces
        self._groups = groups
        self._topics = in_use.topics
        self._producers = in_use.producers
        self._subscriptions = in_use.subscriptions
        self._tasks = tasks
        in_use.topics.opened.hear(self._apply)
        in_use.namespaces.policies_changed.hear(self._policies_changed)
        groups.changed.hear(self._group_changed)

    async def apply_to(self, topics: Sequence[Topic]) -> None:
        """Apply the policies to the open partitions of these topics.  A partition that is opened later has them from
        then on.

        The change is already stored, so it is applied to all of them, even if the caller is cancelled.
        """
        await asyncio.shield(self._tasks.begin("apply policies", self._apply_to(topics)))

    async def _policies_changed(self, namespace: str, name: TopicName | None) -> None:
        of = self._topics if name is None else filter(None, [self._topics.find(name)])
        await self.apply_to([one for one in of if one.name.namespace_name == namespace])

    async def _group_changed(self, group: str) -> None:
        within = set(self._namespaces.in_group(group))
        await self.apply_to([one for one in self._topics if one.name.namespace_name in within])

    async def _apply_to(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            partitions = topic.open_partitions
            for start in range(0, len(partitions), _AT_ONCE):
                former: dict[DispatchLimit, None] = {}
                for partition in partitions[start : start + _AT_ONCE]:
                    former.update(dict.fromkeys(self._apply(partition)))
                for limit in former:
                    limit.close()  # wakes fetches, which wait for it besides subscriptions
                await asyncio.sleep(0)

    def _apply(self, partition: Partition) -> list[DispatchLimit]:
        """Apply the policies to one partition; returns the limits that no longer apply, at which readers may be
        waiting.
        """
        policies, clock = self._namespaces.policies_of(partition.topic.name), self._clock
        shared = self._groups.limits(policies.resource_group)
        if partition.deduplicate(policies.deduplication):
            # Producers that come again wait until the server knows what they have sent; it tells them their last
            # sequence ids.
            self._producers.close(partition)
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
