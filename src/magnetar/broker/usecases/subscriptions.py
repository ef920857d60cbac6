"""Subscriptions for administrators: list, create, move, peek, drop.

A subscription belongs to a topic, and has a position in each of its partitions.  A topic has its Pulsar name, and is
meant as a whole, or one of its partitions (`...-partition-3`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.names import parse_partition
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    Caller,
    Operation,
    namespace_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.admin import SubscriptionAdmin, offset_of
from magnetar.broker.subscriptions.errors import NothingExpired, SubscriptionNotAllowed, SubscriptionNotFound
from magnetar.broker.subscriptions.model import AnalyzedBacklog, MessagePosition
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.usecases.topic_opening import count_or_create, open_topic

LATEST: Final = MessagePosition(positions.LATEST, positions.LATEST)
# From this number of messages on, Pulsar looks through a backlog for old messages, and answers that all is well
# whatever it finds.  If a shorter backlog has no message that is old enough, the answer is a conflict.
_LONG_BACKLOG: Final = 1000
_Result = TypeVar("_Result")


class SubscriptionCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        clock: Clock,
        pulsar_topics: PulsarTopics,
        subscriptions: Subscriptions,
        admin: SubscriptionAdmin,
    ) -> None:
        self._access = access
        self._clock = clock
        self._pulsar_topics = pulsar_topics
        self._subscriptions = subscriptions
        self._admin = admin

    # --- looking -----------------------------------------------------------------------------------------------------

    def names(self, caller: Caller, topic: str) -> Sequence[str]:
        """The subscriptions of a topic that the caller may use to read, Kafka's groups among them.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic
        """
        full = parse_partition(topic)[0].full
        self._access.require(caller, Operation.READ, topic_resource(full))
        found: set[str] = set()
        for one in self._pulsar_topics.partitions(topic):
            found.update(self._admin.names(one))
        return [name for name in sorted(found) if self._may_read(caller, full, name)]

    async def peek(self, caller: Caller, topic: str, name: str, number: int) -> Formed | None:
        """The `number`-th message, from 1, that is not acknowledged; None if there are fewer.

        Raises:
            InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, WrongKindOfTopic,
            SubscriptionNotFound, StorageError
        """
        self._require(caller, topic, name)
        partition = self._pulsar_topics.one_partition(topic, "Peek messages")
        return await self._admin.peek(partition, name, number, self._subscriptions.forms)

    async def analyze(
        self, caller: Caller, topic: str, name: str, start: MessagePosition | None = None
    ) -> AnalyzedBacklog:
        """What a backlog has in the log, from a position on.  Raises as `peek`."""
        self._require(caller, topic, name)
        partition = self._pulsar_topics.one_partition(topic, "Analyze backlog")
        offset = None if start is None else await offset_of(partition, start)
        return await self._admin.analyze(partition, name, offset)

    async def properties(self, caller: Caller, topic: str, name: str) -> Mapping[str, str]:
        """A subscription's own properties.

        Raises:
            InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, SubscriptionNotFound
        """
        self._require(caller, topic, name)

        async def read(partition: Partition) -> Mapping[str, str]:
            return self._subscriptions.properties(self._admin.cursor(partition, name))

        return (await self._each(topic, name, read))[0]

    # --- making and dropping -----------------------------------------------------------------------------------------

    async def create(
        self,
        caller: Caller,
        topic: str,
        name: str,
        start: MessagePosition = LATEST,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a subscription that holds the messages after `start`; false if all partitions of the topic have it
        already.

        If the topic does not exist, it is created where the namespace's policy says so.

        Raises:
            InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, TopicNotAllowed,
            TooManyTopics, SubscriptionNotAllowed, StorageError, MetadataError
        """
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_CREATE) as recording:
            if not name:
                raise SubscriptionNotAllowed("a subscription has a name")
            parsed, index = parse_partition(topic)
            if self._pulsar_topics.find(parsed) is None and index < 0:
                count = await count_or_create(self._access, self._pulsar_topics, caller, topic)
                if count == 0:
                    await open_topic(self._access, self._pulsar_topics, caller, topic)
            made = [
                await self._admin.create(one, name, await offset_of(one, start), properties)
                for one in self._pulsar_topics.partitions(topic)
            ]
            if not any(made):
                recording.is_none()
            return any(made)

    async def delete(self, caller: Caller, topic: str, name: str, *, force: bool = False) -> None:
        """Drop a subscription; `force` disconnects its consumers.

        Raises:
            InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, SubscriptionNotFound,
            SubscriptionBusy, MetadataError
        """
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_DELETE, force=force):
            await self._each(topic, name, lambda one: self._admin.delete(one, name, force=force))

    async def set_properties(
        self, caller: Caller, topic: str, name: str, properties: Mapping[str, str]
    ) -> None:
        """Replace a subscription's own properties.

        Raises:
            InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, SubscriptionNotFound,
            SubscriptionNotAllowed, MetadataError
        """
        async with self._change(
            caller, topic, name, Change.SUBSCRIPTION_PROPERTIES, properties=sorted(properties)
        ):
            await self._each(
                topic, name, lambda one: self._subscriptions.set_properties(one, name, properties)
            )

    # --- moving ------------------------------------------------------------------------------------------------------
    #
    # Each of these raises, besides what it says: InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic,
    # SubscriptionNotFound, SubscriptionBusy, StorageError, MetadataError.

    async def skip_all(self, caller: Caller, topic: str, name: str) -> None:
        """Acknowledge the whole backlog."""
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_SKIP):
            await self._each(topic, name, partial(self._skip_all, name))

    async def skip(self, caller: Caller, topic: str, name: str, count: int) -> None:
        """Acknowledge the next `count` messages.  Raises WrongKindOfTopic."""
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_SKIP, messages=count):
            partition = self._pulsar_topics.one_partition(topic, "Skip messages")
            await self._admin.skip(partition, name, max(count, 0))

    async def expire(self, caller: Caller, topic: str, name: str, seconds: int) -> None:
        """Acknowledge messages that are older than this many seconds.  Raises NothingExpired."""
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_EXPIRE, seconds=seconds):
            before_ms = self._clock.now_ms() - seconds * 1000
            counts = await self._each(topic, name, lambda one: self._admin.expire(one, name, before_ms))
            if not any(counts) and not self._has_long_backlog(topic, name):
                raise _nothing_expired(topic, name)

    async def expire_to(self, caller: Caller, topic: str, name: str, position: MessagePosition) -> None:
        """Acknowledge all messages before a message id.  Raises WrongKindOfTopic, NothingExpired."""
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_EXPIRE, to=_audited(position)):
            partition = self._pulsar_topics.one_partition(topic, "Expire messages to a position")
            offset = await offset_of(partition, position)
            if self._admin.cursor(partition, name).mark_delete >= offset:
                raise _nothing_expired(topic, name)
            await self._admin.skip_to(partition, name, offset)

    async def expire_all(self, caller: Caller, topic: str, seconds: int) -> None:
        """As `expire`, for all subscriptions of a topic that the caller may use to read.  Raises TopicNotAuthorized."""
        full = parse_partition(topic)[0].full
        async with self._access.change(
            caller, Operation.READ, topic_resource(full), Change.SUBSCRIPTION_EXPIRE, seconds=seconds
        ):
            before_ms = self._clock.now_ms() - seconds * 1000
            count = 0
            names = set()
            for partition in self._pulsar_topics.partitions(topic):
                for name in self._subscriptions.names(partition):
                    if self._may_read(caller, full, name):
                        names.add(name)
                        count += await self._admin.expire(partition, name, before_ms)
            if not count and not any(self._has_long_backlog(topic, name) for name in names):
                raise _nothing_expired(topic, "any of them")

    async def reset_to_time(self, caller: Caller, topic: str, name: str, time_ms: int) -> None:
        """Start again from the first message published at or after a time."""
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_RESET, time_ms=time_ms):
            await self._each(
                topic,
                name,
                lambda one: self._admin.reset(one, name, partial(positions.offset_at_time, one.log, time_ms)),
            )

    async def reset(self, caller: Caller, topic: str, name: str, position: MessagePosition) -> None:
        """Start again from a message id.  Raises WrongKindOfTopic."""
        async with self._change(caller, topic, name, Change.SUBSCRIPTION_RESET, to=_audited(position)):
            partition = self._pulsar_topics.one_partition(topic, "Reset-cursor at position")
            await self._admin.reset(partition, name, partial(offset_of, partition, position))

    # --- all topics of a namespace -----------------------------------------------------------------------------------

    async def clear_backlogs(self, caller: Caller, namespace: str, name: str = "") -> None:
        """Acknowledge the backlogs of all subscriptions in a namespace, or of those with one name.

        This leaves alone those that the caller may not use to read.

        Raises:
            NamespaceNotAuthorized, NamespaceNotFound, SubscriptionBusy, MetadataError
        """
        async with self._access.change(
            caller, Operation.READ, namespace_resource(namespace), Change.SUBSCRIPTION_SKIP, subscription=name
        ):
            async for partition in self._of_namespace(namespace):
                for one in self._subscriptions.names(partition):
                    if (not name or one == name) and self._may_read(caller, partition.topic.name.full, one):
                        await self._skip_all(one, partition)

    async def delete_everywhere(self, caller: Caller, namespace: str, name: str) -> None:
        """Drop the subscriptions with one name from all topics of a namespace, except those that the caller may not
        use to read.

        Raises as `clear_backlogs`.
        """
        async with self._access.change(
            caller,
            Operation.READ,
            namespace_resource(namespace),
            Change.SUBSCRIPTION_DELETE,
            subscription=name,
        ):
            async for partition in self._of_namespace(namespace):
                is_there = name in self._subscriptions.names(partition)
                if is_there and self._may_read(caller, partition.topic.name.full, name):
                    await self._admin.delete(partition, name)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _require(self, caller: Caller, topic: str, name: str) -> None:
        resource = subscription_resource(parse_partition(topic)[0].full, name)
        self._access.require(caller, Operation.READ, resource)

    def _change(self, caller: Caller, topic: str, name: str, change: Change, **details: object) -> Recording:
        full, index = parse_partition(topic)
        if index >= 0:
            details["partition"] = index
        resource = subscription_resource(full.full, name)
        return self._access.change(caller, Operation.READ, resource, change, **details)

    def _may_read(self, caller: Caller, full_name: str, name: str) -> bool:
        return self._access.permits(caller, Operation.READ, subscription_resource(full_name, name))

    async def _skip_all(self, name: str, partition: Partition) -> None:
        await self._admin.skip_to(partition, name, partition.log.high_watermark)

    async def _each(
        self, topic: str, name: str, act: Callable[[Partition], Awaitable[_Result]]
    ) -> list[_Result]:
        """Do something for every partition that has the subscription; raises SubscriptionNotFound if none has."""
        results = []
        for partition in self._pulsar_topics.partitions(topic):
            try:
                self._admin.cursor(partition, name)
            except SubscriptionNotFound:
                continue
            results.append(await act(partition))
        if not results:
            raise SubscriptionNotFound(f"Subscription {name} not found for topic {topic}")
        return results

    def _has_long_backlog(self, topic: str, name: str) -> bool:
        return any(
            name in self._admin.names(one) and self._admin.backlog(one, name) >= _LONG_BACKLOG
            for one in self._pulsar_topics.partitions(topic)
        )

    async def _of_namespace(self, namespace: str) -> AsyncIterator[Partition]:
        """The partitions of all topics, which may be very many: others have their turns between two of them."""
        for name in await self._pulsar_topics.names(namespace, persistent=True):
            await asyncio.sleep(0)
            try:
                partition = self._pulsar_topics.partition(name)
            except UnknownTopic:
                continue  # deleted meanwhile
            yield partition


def _nothing_expired(topic: str, name: str) -> NothingExpired:
    return NothingExpired(
        f"Expire message by timestamp not issued on topic {topic} for subscription {name}: nothing is that old"
    )


def _audited(position: MessagePosition) -> str:
    return f"{position.ledger_id}:{position.entry_id}"
