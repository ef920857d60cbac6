"""Topics that store nothing: a message goes to the consumers that are connected and have asked, or it is dropped.

All subscription types use the persistent topics' dispatchers.  The broker forgets a message as soon as a consumer has
got it, or when no consumer could take it.  So there is nothing to acknowledge, to redeliver or to seek, and every
message id is (0, 0).

A partition of such a topic has a log like any other, which stays empty: Kafka clients find nothing in it, and may not
produce to it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.errors import PolicyViolation
from magnetar.broker.log.model import Appended
from magnetar.broker.log.partition import OpenLog, Partition
from magnetar.broker.log.topic import PartitionTopic
from magnetar.broker.quotas.dispatch_limit import DispatchLimit
from magnetar.broker.subscriptions.consumer import ConsumerPort, SubscribedConsumer
from magnetar.broker.subscriptions.dispatch.model import (
    Actions,
    ActiveChange,
    Consumer,
    Deliver,
    Dispatcher,
    Unit,
)
from magnetar.broker.subscriptions.dispatchers import check_fits, make_dispatcher
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.broker.subscriptions.forms import describe
from magnetar.broker.subscriptions.limits import SubscriptionLimits
from magnetar.broker.subscriptions.model import (
    AckedId,
    Buffer,
    ConsumerSpec,
    Delivery,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import Done, EntryId, LedgerId
from magnetar.wire.pulsar.entry import EntryView

_LEDGER: Final = LedgerId(0)
_ENTRY: Final = EntryId(0)


class VolatileSubscriptions:
    """All subscriptions of topics that store nothing, by partition; they live and die with their consumers."""

    def __init__(self, clock: Clock, limits: SubscriptionLimits) -> None:
        self._clock = clock
        self._policies_of = limits.policies_of
        self._limits = limits
        self._open: dict[Partition, dict[str, NonPersistentSubscription]] = {}

    def make_partition(
        self, topic: PartitionTopic, index: int, replicas: list[int], open_log: OpenLog
    ) -> Partition:
        """A partition of the kind that the topic's name asks for."""
        if topic.name.persistent:
            return Partition(topic, index, replicas, open_log)
        return NonPersistentPartition(topic, index, replicas, open_log, self)

    def of(self, partition: Partition) -> dict[str, "NonPersistentSubscription"]:
        """The partition's subscriptions, by name."""
        return dict(self._open.get(partition, {}))

    def subscribe(
        self, partition: Partition, wanted: SubscribeRequest, port: ConsumerPort
    ) -> SubscribedConsumer:
        """Connect a consumer to a subscription, which is made when it is not there.

        Raises:
            SubscriptionNotAllowed, SubscriptionBusy, ConsumerBusy, ConsumerAssignError
        """
        if wanted.consumer.reads_compacted:
            raise SubscriptionNotAllowed("readCompacted only allowed on persistent topics")
        subscription = self._open.get(partition, {}).get(wanted.subscription)
        if subscription is None:
            policies = self._policies_of(partition.topic.name)
            subscription = NonPersistentSubscription(
                self,
                partition,
                wanted.subscription,
                self._clock,
                lambda spec: make_dispatcher(partition, spec, policies),
            )
            subscription.own_limit = self._limits.own(partition, subscription.name)
        return subscription.add(wanted.consumer, port)

    def began(self, subscription: "NonPersistentSubscription") -> None:
        """It has a consumer."""
        self._open.setdefault(subscription.partition, {})[subscription.name] = subscription

    def ended(self, subscription: "NonPersistentSubscription") -> None:
        """It has no consumers any more."""
        known = self._open.get(subscription.partition, {})
        if known.get(subscription.name) is subscription:
            del known[subscription.name]
            if not known:
                del self._open[subscription.partition]


class NonPersistentPartition(Partition):
    """One partition of a non-persistent topic."""

    __slots__ = ("_volatile", "messages_in")

    messages_in: int

    def __init__(
        self,
        topic: PartitionTopic,
        index: int,
        replicas: list[int],
        open_log: OpenLog,
        volatile: VolatileSubscriptions,
    ) -> None:
        super().__init__(topic, index, replicas, open_log)
        self.messages_in = 0
        self._volatile = volatile

    @property
    def subscriptions(self) -> dict[str, "NonPersistentSubscription"]:
        return self._volatile.of(self)

    def append(
        self,
        batch: memoryview,
        now_ms: int,
        done: Done,
        *,
        transactional_id: str | None = None,
        keys_known: bool = False,
    ) -> Appended:
        raise PolicyViolation("A non-persistent topic has no log that could be produced to")

    def publish(
        self,
        payload: memoryview,
        view: EntryView,
        now_ms: int,
        done: Done,
        *,
        transaction: int | None = None,
    ) -> Entry:
        """Hand a message out, which is of no transaction; `done` is called soon.  Never refused: what no consumer takes
        is dropped.

        So is what comes while more has gone out than the dispatch rates allow.
        """
        limit = self.dispatch_limit
        may_go_out = limit is None or not limit.owed_s()
        for subscription in self._volatile.of(self).values():
            if not may_go_out:
                subscription.drop(view)
            elif subscription.publish(payload, view) and limit is not None:
                limit.used(view.num_messages, len(payload))
        asyncio.get_running_loop().call_soon(done, None)
        self.messages_in += view.num_messages
        if self.publish_limit is not None:
            self.publish_limit.used(view.num_messages, len(payload))
        if self.shared_publish_limit is not None:
            self.shared_publish_limit.used(view.num_messages, len(payload))
        return Entry(0, view.num_messages - 1, now_ms, payload, EntryKind.PULSAR, _LEDGER, _ENTRY)


class NonPersistentSubscription:
    """The consumers of one name on one partition.  Offers what handlers use of a `Subscription`."""

    is_durable = False

    def __init__(
        self,
        home: VolatileSubscriptions,
        partition: Partition,
        name: str,
        clock: Clock,
        make_dispatcher: Callable[[ConsumerSpec], Dispatcher],
    ) -> None:
        self._home = home
        self.partition = partition
        self.name = name
        self.key = CursorKey(name, partition.topic.name.full, partition.index)
        self.own_limit: DispatchLimit | None = None
        self.messages_dropped = 0
        self.dispatcher: Dispatcher | None = None
        self._clock = clock
        self._make_dispatcher = make_dispatcher
        self._members: dict[Consumer, SubscribedConsumer] = {}
        self._next_offset = 0

    @property
    def consumers(self) -> list[SubscribedConsumer]:
        return list(self._members.values())

    @property
    def is_in_use(self) -> bool:
        return bool(self._members)

    @property
    def type(self) -> SubscriptionType | None:
        return None if self.dispatcher is None else self.dispatcher.type

    def backlog(self) -> int:
        return 0

    def add(self, spec: ConsumerSpec, port: ConsumerPort) -> SubscribedConsumer:
        """Connect a consumer.  Raises SubscriptionBusy, ConsumerBusy, ConsumerAssignError."""
        dispatcher = self.dispatcher or self._make_dispatcher(spec)
        check_fits(dispatcher, spec)
        member = SubscribedConsumer(self, spec, port, self._clock.now_ms(), 0)
        actions = dispatcher.add_consumer(member.state)
        self.dispatcher = dispatcher
        self._members[member.state] = member
        self._home.began(self)
        self._do(actions)
        return member

    def remove(self, member: SubscribedConsumer) -> bool:
        """A consumer has gone; false when it was not connected."""
        if self._members.pop(member.state, None) is None or self.dispatcher is None:
            return False
        self._do(self.dispatcher.remove_consumer(member.state))
        if not self._members:
            self._end()
        return True

    def disconnect_all(self) -> None:
        """Close every consumer."""
        members, self._members = self._members, {}
        self._end()
        for member in members.values():
            member.port.closed()

    def _end(self) -> None:
        self.dispatcher = None
        self._home.ended(self)

    def flow(self, member: SubscribedConsumer, permits: int) -> None:
        if self.dispatcher is not None:
            self._do(self.dispatcher.flow(member.state, permits))

    def writable(self, member: SubscribedConsumer, is_writable: bool) -> None:
        if self.dispatcher is not None:
            self._do(self.dispatcher.set_writable(member.state, is_writable))

    def acknowledge(self, member: SubscribedConsumer, ids: Sequence[AckedId], *, cumulative: bool) -> None:
        return None

    def acknowledge_many(
        self, member: SubscribedConsumer, pieces: Iterable[Sequence[AckedId]], *, cumulative: bool
    ) -> None:
        return None

    def redeliver(
        self, member: SubscribedConsumer, positions: Iterable[tuple[int, int]] | None, epoch: int | None
    ) -> None:
        return None

    def publish(self, payload: Buffer, view: EntryView) -> bool:
        """Hand a message to the consumers that may have it now, or drop it; whether it went out."""
        dispatcher, limit = self.dispatcher, self.own_limit
        if dispatcher is None or (limit is not None and limit.owed_s()):
            self.drop(view)
            return False
        base, end = self._next_offset, self._next_offset + view.num_messages
        self._next_offset = end
        unit = Unit((0, 0), base, end, payload=payload)
        describe(unit, view, dispatcher.type)
        unit.deliver_at_ms = 0
        unit.chunk_id = None
        delivered = self._do(dispatcher.offer([unit], 0))
        dispatcher.acked([(base, end)])  # whatever became of it, it is over
        if not delivered:
            self.drop(view)
        elif limit is not None:
            limit.used(view.num_messages, len(payload))
        return delivered

    def drop(self, view: EntryView) -> None:
        """Its consumers do not get a message."""
        if self.dispatcher is not None:
            self.messages_dropped += view.num_messages

    def _do(self, actions: Actions) -> bool:
        """Carry out; whether a message went out."""
        delivered = False
        for action in actions:
            match action:
                case Deliver(consumer, units):
                    member = self._members.get(consumer)
                    if member is not None and member.port.is_writable:
                        delivered = True
                        self._deliver(member, units)
                    elif member is not None and self.dispatcher is not None:
                        self.dispatcher.set_writable(consumer, False)
                        self.dispatcher.flow(consumer, sum([unit.permits for unit in units]))
                case ActiveChange(consumer, is_active):
                    member = self._members.get(consumer)
                    if member is not None:
                        member.port.active_changed(is_active)
        return delivered

    @staticmethod
    def _deliver(member: SubscribedConsumer, units: Sequence[Unit]) -> None:
        epoch = member.state.epoch
        payloads: list[Buffer] = [unit.payload for unit in units]  # type: ignore[misc]
        member.port.deliver([Delivery(0, 0, payload, 0, (), epoch) for payload in payloads])
        member.messages_out += sum([unit.message_count for unit in units])
        member.bytes_out += sum(map(len, payloads))

    def __str__(self) -> str:
        return f"subscription {self.name} of {self.partition.topic.name.full}"
