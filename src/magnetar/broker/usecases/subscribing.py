"""Subscribing: consumers join Pulsar's subscriptions, move in them, and leave.

A consumer that has joined asks and acknowledges through its handle, `OpenedConsumer`.
"""

from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from magnetar.base.names import parse_partition
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.admission import Producers
from magnetar.broker.schemas.model import Schema
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, Resource, subscription_resource
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.consumer import ConsumerPort, SubscribedConsumer
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.broker.subscriptions.model import AckedId, ConsumerSpec, SubscribeRequest
from magnetar.broker.subscriptions.positions import LastMessage
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.pulsar import PulsarTopics, partition_index
from magnetar.broker.usecases.schemas import noting_new_schema
from magnetar.broker.usecases.standing import Standing
from magnetar.broker.usecases.topic_opening import open_topic
from magnetar.ledger.compacted_view import LogView, view_of


class ConsumerFigures(NamedTuple):
    """What a consumer has got since it connected, in messages; what it may still get, and what it holds now."""

    spec: ConsumerSpec
    connected_since_ms: int
    messages_out: int
    bytes_out: int
    messages_redelivered: int
    acked_messages: int
    permits: int
    unacked_messages: int
    is_blocked: bool
    backlog: int  # of its subscription


class OpenedConsumer:
    """The handle of a consumer that has subscribed."""

    __slots__ = ("__weakref__", "_caller", "_member", "_resource")

    def __init__(self, member: SubscribedConsumer, caller: Caller, resource: Resource) -> None:
        self._member = member
        self._caller = caller
        self._resource = resource

    def flow(self, permits: int) -> None:
        """The consumer asks for this many more messages."""
        member = self._member
        member.subscription.flow(member, permits)

    def writable(self) -> None:
        """Its connection takes bytes again."""
        member = self._member
        member.subscription.writable(member, True)

    def acknowledge(self, ids: Sequence[AckedId], *, cumulative: bool) -> Awaitable[None] | None:
        """Take up to `IDS_AT_ONCE` acknowledgements; the caller must await the result."""
        member = self._member
        return member.subscription.acknowledge(member, ids, cumulative=cumulative)

    def acknowledge_many(
        self, pieces: Iterable[Sequence[AckedId]], *, cumulative: bool
    ) -> Awaitable[None] | None:
        """As `acknowledge`, piece by piece."""
        member = self._member
        return member.subscription.acknowledge_many(member, pieces, cumulative=cumulative)

    def redeliver(self, positions: Sequence[tuple[int, int]] | None, epoch: int | None) -> None:
        """The consumer wants entries again: by their positions, or (None) all that it has not acknowledged."""
        member = self._member
        member.subscription.redeliver(member, positions, epoch)

    def figures(self) -> ConsumerFigures:
        """As they are now."""
        member, state = self._member, self._member.state
        return ConsumerFigures(
            spec=member.spec,
            connected_since_ms=member.connected_since_ms,
            messages_out=member.messages_out,
            bytes_out=member.bytes_out,
            messages_redelivered=member.messages_redelivered,
            acked_messages=member.acked_messages,
            permits=state.permits,
            unacked_messages=state.unacked_messages,
            is_blocked=state.blocked,
            backlog=member.subscription.backlog(),
        )


class LastPositions(NamedTuple):
    """The position of the topic's last message; and (ledger id, entry id) of the last entry that the subscription has
    acknowledged with all before it.

    `partition` is -1 for a topic that is not partitioned.
    """

    partition: int
    message: LastMessage
    mark_delete: tuple[int, int]


class SubscribeCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        pulsar_topics: PulsarTopics,
        namespaces: Namespaces,
        producers: Producers,
        schemas: SchemaRegistry,
        subscriptions: Subscriptions,
        standing: Standing,
    ) -> None:
        self._access = access
        self._pulsar_topics = pulsar_topics
        self._namespaces = namespaces
        self._producers = producers
        self._schemas = schemas
        self._subscriptions = subscriptions
        self._standing = standing

    async def subscribe(
        self,
        caller: Caller,
        topic: str,
        wanted: SubscribeRequest,
        port: ConsumerPort,
        *,
        schema: Schema | None,
        may_create_topic: bool,
    ) -> OpenedConsumer:
        """Connect a consumer to a subscription of the partition that `topic` names; both are created if they may be.

        The consumer gets no message before it asks.

        Raises:
            InvalidTopicName, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, TopicNotAllowed,
            TooManyTopics, SubscriptionNotAllowed, SubscriptionNotFound, SubscriptionBusy, ConsumerBusy,
            ConsumerAssignError, IncompatibleSchema, InvalidSchema, MetadataError, StorageError
        """
        full = parse_partition(topic)[0].full
        changes = self._standing.changes
        resource = subscription_resource(full, wanted.subscription)
        self._access.require(caller, Operation.READ, resource)
        if not wanted.subscription:
            raise SubscriptionNotAllowed("Empty subscription name")
        partition = await open_topic(
            self._access, self._pulsar_topics, caller, topic, may_create=may_create_topic
        )
        if not self._namespaces.policies_of(partition.topic.name).auto_subscription_creation:
            wanted = replace(wanted, may_create=False)
        if schema is not None:
            async with noting_new_schema(self._access, self._schemas, caller, partition.topic.name):
                await self._check_schema(partition, schema)
        noting = partial(self._access.record, caller, Change.SUBSCRIPTION_CREATE, resource, automatic=True)
        member = await self._subscriptions.subscribe(partition, wanted, port, within=noting)
        is_permitted = partial(self._access.permits, caller, Operation.READ, resource)
        if self._standing.changes != changes and not is_permitted():  # it was taken meanwhile
            await self._subscriptions.leave(member)
            self._access.require(caller, Operation.READ, resource)
        opened = OpenedConsumer(member, caller, resource)
        self._standing.add(opened, is_permitted, partial(self._send_away, member))
        return opened

    def _send_away(self, member: SubscribedConsumer) -> None:
        self._subscriptions.leave_later(member)
        member.port.closed()

    async def _check_schema(self, partition: Partition, schema: Schema) -> None:
        has_producers = bool(self._producers.find(partition))
        is_idle = (
            not has_producers
            and partition.log.next_offset == partition.log.log_start
            and not any(one.consumers for one in self._subscriptions.of(partition))
        )
        await self._schemas.check_consumer(
            partition.topic.name, schema, is_idle=is_idle, has_producers=has_producers
        )

    # --- of a consumer that has subscribed ---------------------------------------------------------------------------

    async def leave(self, consumer: OpenedConsumer) -> None:
        """The consumer leaves.  If it was the last one, its subscription's position is stored when this returns."""
        await self._subscriptions.leave(consumer._member)

    def leave_later(self, consumer: OpenedConsumer) -> None:
        """As `leave`, for a lost connection: the consumer is gone when this returns."""
        self._subscriptions.leave_later(consumer._member)

    async def unsubscribe(self, consumer: OpenedConsumer, *, force: bool) -> None:
        """Drop the subscription if this is its only consumer, or (`force`) whatever others it has.

        Raises:
            ConsumerBusy, MetadataError
        """
        async with self._access.record(
            consumer._caller, Change.SUBSCRIPTION_DELETE, consumer._resource, force=force
        ):
            await self._subscriptions.unsubscribe(consumer._member, force=force)

    async def seek(
        self, consumer: OpenedConsumer, *, position: tuple[int, int] | None = None, time_ms: int = 0
    ) -> None:
        """Start again from the entry at `position` (ledger id, entry id), or from the first message at or after a
        time.

        This closes the subscription's consumers, which reconnect.

        Raises:
            SubscriptionNotAllowed, MetadataError, StorageError
        """
        subscription = stored_subscription(consumer, "Seek is not supported on non-persistent topic")
        find = (
            positions.offset_at_time(_view(consumer), time_ms)
            if position is None
            else positions.offset_of(_view(consumer), *position)
        )
        await self._subscriptions.seek(subscription, find)

    async def last_positions(self, consumer: OpenedConsumer) -> LastPositions:
        """How far the topic and the consumer's subscription have got.

        Raises:
            SubscriptionNotAllowed, StorageError
        """
        subscription = stored_subscription(
            consumer, "getLastMessageId is not supported on non-persistent topic"
        )
        partition, view = subscription.partition, _view(consumer)
        forms, is_dense = self._subscriptions.forms, subscription.is_durable
        last = await positions.last_message(partition, forms, view, is_dense=is_dense)
        below = await positions.position_below(view, subscription.cursor.mark_delete)
        return LastPositions(partition_index(partition), last, below)


def _view(consumer: OpenedConsumer) -> LogView:
    """The log as the consumer reads it, or would read it if it were active."""
    member = consumer._member
    return view_of(member.subscription.partition.log, compacted=member.spec.reads_compacted)


def stored_subscription(consumer: OpenedConsumer, refusal: str) -> Subscription:
    """The consumer's subscription, for a use case: no door gets it.

    Raises:
        SubscriptionNotAllowed: the topic stores nothing; `refusal` is the text.
    """
    subscription = consumer._member.subscription
    if not isinstance(subscription, Subscription):
        raise SubscriptionNotAllowed(refusal)
    return subscription
