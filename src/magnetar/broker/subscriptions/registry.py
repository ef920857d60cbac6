"""All subscriptions that have, or just had, consumers: open, look after, move, drop and close.

A durable subscription is a cursor in `CursorStore`; there is a `Subscription` for it only while a client uses it.  A
task that opens, moves or drops one holds its `changing`, so a SUBSCRIBE in the middle of a seek waits for its end and
finds the new position.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

from magnetar.base.clock import TimerHandle
from magnetar.base.tasks import Tasks
from magnetar.base.times import Times
from magnetar.broker.errors import NotLeader
from magnetar.broker.log.partition import Partition
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.beginnings import Beginnings
from magnetar.broker.subscriptions.consumer import (
    ConsumerPort,
    MakeConsumer,
    OutboxConsumer,
    SubscribedConsumer,
)
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.dispatchers import check_type, make_dispatcher
from magnetar.broker.subscriptions.errors import (
    SubscriptionBusy,
    SubscriptionClosed,
    SubscriptionNotAllowed,
    SubscriptionNotFound,
)
from magnetar.broker.subscriptions.forms import Forms
from magnetar.broker.subscriptions.limits import SubscriptionLimits
from magnetar.broker.subscriptions.model import (
    ConsumerSpec,
    Counters,
    SubscribeRequest,
    SubscriptionType,
    Within,
)
from magnetar.broker.subscriptions.pending_acks import PendingAcks
from magnetar.broker.subscriptions.remembered import Rows
from magnetar.broker.subscriptions.request import PROPERTY_PREFIX, check_name, kept_properties, properties_of
from magnetar.broker.subscriptions.stored_positions import StoredPositions
from magnetar.broker.subscriptions.subscription import Environment, Subscription
from magnetar.broker.subscriptions.volatile import NonPersistentSubscription, VolatileSubscriptions
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore

log: Final = logging.getLogger(__name__)

# A reader that the broker disconnected for its seek has so long to come back.
READER_RETURNS_S: Final = 60.0


class Subscriptions:
    """See the module's text.

    `consumes(group, topic's full name)`: whether a Kafka group has members that consume the topic.
    """

    def __init__(
        self,
        times: Times,
        cursors: CursorStore,
        forms: Forms,
        consumes: Callable[[str, str], bool],
        volatile: VolatileSubscriptions,
        limits: SubscriptionLimits,
        pending: PendingAcks,
        memory_bytes: int,
    ) -> None:
        self._clock = clock = times.clock
        self._upkeep = times.upkeep
        self._cursors = cursors
        self.forms = forms
        self._consumes = consumes
        self._policies_of = limits.policies_of
        self._volatile = volatile
        self._limits = limits
        self.counters = Counters()
        self._tasks = Tasks(log)
        self._stored = StoredPositions(clock, cursors, self._let_go)
        self.store: Final = self._stored.store
        self.note_use: Final = self._stored.changed  # stored within a second, with the position as it is
        self.properties: Final = properties_of  # of a subscription, from its cursor
        self._environment = Environment(
            clock,
            cursors,
            forms,
            self._make_dispatcher,
            self._stored.changed,
            self._forget,
            self.counters,
            self._tasks,
            pending,
            Rows(memory_bytes),
        )
        self._beginnings = Beginnings(clock, cursors, self.check_count)
        self._open: dict[Partition, dict[str, Subscription]] = {}
        # Those of readers that seek, until they come back.
        self._expected: dict[Subscription, TimerHandle] = {}
        pending.settled.hear(self._no_longer_pending)

    def start(self) -> None:
        """Begin to store positions (`stored_positions.py`)."""
        self._stored.start(self._upkeep)

    # --- looking -----------------------------------------------------------------------------------------------------

    def of(self, partition: Partition) -> list[Subscription]:
        """The partition's subscriptions that are in use."""
        return list(self._open.get(partition, {}).values())

    def volatile(self, partition: Partition) -> list[NonPersistentSubscription]:
        """The subscriptions of a topic that stores nothing, all of which are in use."""
        return list(self._volatile.of(partition).values())

    def find(self, partition: Partition, name: str) -> Subscription | None:
        """The subscription if a client uses it; `CursorStore` has what is stored of others."""
        return self._open.get(partition, {}).get(name)

    def names(self, partition: Partition) -> list[str]:
        """Names of all subscriptions of the partition, groups of Kafka consumers and readers included, ascending."""
        topic, index = partition.topic.name.full, partition.index
        stored = self._cursors.subscriptions_of(topic)
        names = {name for name in stored if self._cursors.get(CursorKey(name, topic, index)) is not None}
        return sorted(names | self._open.get(partition, {}).keys())

    def check_count(self, partition: Partition, name: str) -> None:
        """Raise SubscriptionNotAllowed if the partition may not have this subscription besides those that it has."""
        self._limits.check_count(partition, lambda: {*self.names(partition), name})

    async def set_properties(self, partition: Partition, name: str, properties: Mapping[str, str]) -> None:
        """Replace the subscription's own properties.

        Raises SubscriptionNotFound, SubscriptionNotAllowed, MetadataError.
        """
        key = CursorKey(name, partition.topic.name.full, partition.index)
        known = self._cursors.newest(key)
        if known is None:
            raise SubscriptionNotFound(f"Subscription {name} not found")
        kept = {k: v for k, v in known.properties.items() if not k.startswith(PROPERTY_PREFIX)}
        kept |= kept_properties(properties)
        subscription = self.find(partition, name)
        if subscription is not None and subscription.is_attached:
            subscription.cursor.properties = kept
            await self.store(subscription)
        else:
            cursor = known.copy()
            cursor.properties = kept
            partition.topic.check_exists()
            await self._cursors.commit({key: cursor})

    # --- consumers come and go ---------------------------------------------------------------------------------------

    async def subscribe(
        self,
        partition: Partition,
        wanted: SubscribeRequest,
        port: ConsumerPort,
        make: MakeConsumer = OutboxConsumer,
        *,
        within: Within = nullcontext,
    ) -> SubscribedConsumer:
        """Connect a consumer to a subscription, which is made when it is not there.

        Nothing is delivered before the consumer asks for it with `flow`.  `make` is what the consumer is, except of a
        topic that stores nothing.  A subscription that is new is stored `within` what this makes.

        Raises:
            SubscriptionBusy, ConsumerBusy, ConsumerAssignError, SubscriptionNotAllowed, SubscriptionNotFound
            NotLeader: another broker has the partition now.
            MetadataError, StorageError: it cannot be made now, or it is not known what it may be given.
        """
        partition.topic.check_exists()
        check_type(partition, wanted.consumer.type, self._policies_of(partition.topic.name))
        if not partition.topic.name.persistent:
            partition.check_served()
            return self._volatile.subscribe(partition, wanted, port)
        check_name(wanted.subscription)
        limit = partition.subscribe_limit
        if limit is not None and not limit.admit(wanted.consumer.identity):
            raise SubscriptionNotAllowed("Subscribe limited by subscribe rate limit per consumer.")
        is_for_one = wanted.consumer.type in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        if wanted.consumer.reads_compacted and not is_for_one:
            raise SubscriptionNotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
        subscription = await self._opened(partition, wanted, within)
        try:
            partition.check_served()
            self._check_room(partition, subscription)
            if wanted.is_durable and self._consumes(wanted.subscription, partition.topic.name.full):
                raise SubscriptionBusy(
                    f"a Kafka group named {wanted.subscription} has members that consume this topic"
                )
            partition.check_committed(subscription.cursor.next_unacknowledged(partition.log.log_start))
            unacked_max = self._policies_of(partition.topic.name).unacked_limits.consumer
            return subscription.add(wanted.consumer, port, unacked_max, make)
        except NotLeader:
            if not subscription.is_in_use:
                self._forget(subscription)
            raise
        finally:
            subscription.changing.release()
            if not subscription.is_in_use:
                self._tasks.spawn("let go of a subscription", self._let_go(subscription))

    def _check_room(self, partition: Partition, subscription: Subscription) -> None:
        policies = self._policies_of(partition.topic.name)
        limit = policies.consumers_max
        if limit and sum(len(one.consumers) for one in self.of(partition)) >= limit:
            raise ConsumerBusy("Topic reached max consumers limit")
        limit = policies.consumers_per_subscription_max
        if limit and len(subscription.consumers) >= limit:
            raise ConsumerBusy("Subscription reached max consumers limit")

    async def _opened(self, partition: Partition, wanted: SubscribeRequest, within: Within) -> Subscription:
        """The subscription with its cursor, `changing` held."""
        name = wanted.subscription
        while True:
            known = self._open.setdefault(partition, {})
            subscription = known.get(name)
            if subscription is None:
                subscription = Subscription(
                    self._environment, partition, name, Cursor(), is_durable=wanted.is_durable
                )
                subscription.pace.limits = self._limits.of(partition, name)
                known[name] = subscription
            await subscription.changing.acquire()
            if known.get(name) is not subscription or self._open.get(partition) is not known:
                subscription.changing.release()  # it was dropped while we waited
                continue
            try:
                if subscription.is_durable is not wanted.is_durable:
                    kind = "Durable" if subscription.is_durable else "NonDurable"
                    raise SubscriptionNotAllowed(f"{kind} subscription with the same name already exists.")
                if subscription.is_attached:
                    pass
                elif wanted.is_durable:
                    await self._beginnings.attach(subscription, wanted, within)
                else:
                    await self._beginnings.place(subscription, wanted)
            except BaseException:
                if not subscription.is_attached:
                    self._forget(subscription)
                subscription.changing.release()
                raise
            return subscription

    async def leave(self, member: SubscribedConsumer) -> None:
        """A consumer has gone.  If it was the last one, its subscription's position is stored when this returns."""
        subscription = self._without(member)
        if subscription is not None:
            await self._let_go(subscription)

    def leave_later(self, member: SubscribedConsumer) -> None:
        """As `leave`, for a caller that cannot wait: the consumer is gone when this returns."""
        subscription = self._without(member)
        if subscription is not None:
            self._tasks.spawn("let go of a subscription", self._let_go(subscription))

    @staticmethod
    def _without(member: SubscribedConsumer) -> Subscription | None:
        """Disconnect a consumer; returns its subscription if that has to be released."""
        subscription = member.subscription
        was_connected = subscription.remove(member)
        if not was_connected or not isinstance(subscription, Subscription) or subscription.is_in_use:
            return None
        return subscription

    async def _let_go(self, subscription: Subscription) -> None:
        """Store the state of a subscription without consumers, with all that they have acknowledged, and forget it."""
        async with subscription.changing:
            if (
                subscription.is_in_use
                or self.find(subscription.partition, subscription.name) is not subscription
            ):
                return
            await subscription.all_taken()
            policies = self._policies_of(subscription.partition.topic.name)
            if subscription.is_attached and policies.subscription_expiration_minutes:
                self.note_use(subscription)
            if not subscription.is_durable or await self._stored.settle(subscription):
                self._forget(subscription)

    def _forget(self, subscription: Subscription) -> None:
        """No client uses it: what is stored is the subscription again."""
        self._stored.forget(subscription)
        self._expect_no_more(subscription)
        if subscription.is_durable and subscription.is_attached:
            self._cursors.detach(subscription.key, subscription)
        subscription.is_attached = False
        subscription.let_go()
        known = self._open.get(subscription.partition)
        if known is not None and known.get(subscription.name) is subscription:
            del known[subscription.name]
            if not known:
                del self._open[subscription.partition]

    # --- moving and dropping -----------------------------------------------------------------------------------------

    async def seek(self, subscription: Subscription, find: Coroutine[Any, Any, int]) -> None:
        """Start again from the offset that `find` returns.  Its consumers are closed first, and reconnect.  What they
        have acknowledged before is taken first, or it would be missing in what comes again.

        Raises:
            SubscriptionClosed: it was dropped, or let go of, meanwhile, or another broker has it; nothing has changed.
            MetadataError: the new position holds, but is not stored yet.
            StorageError, EntryCorrupt: from `find`; nothing has changed.
        """
        async with subscription.changing:
            if subscription.is_closed:
                find.close()
                raise SubscriptionClosed(f"{subscription} was closed meanwhile")
            offset = await find
            subscription.disconnect_all()
            await subscription.all_taken()
            if subscription.is_closed:
                raise SubscriptionClosed(f"{subscription} was closed meanwhile")
            subscription.move(offset)
            if not subscription.is_durable:
                self._expect(subscription)
            elif subscription.is_attached:
                await self.store(subscription)
                if await self._stored.settle(subscription):
                    self._forget(subscription)

    def _expect(self, subscription: Subscription) -> None:
        """Keep the subscription of a reader for a while from now on, however often the reader has sought before."""
        self._expect_no_more(subscription)
        self._expected[subscription] = self._clock.call_later(READER_RETURNS_S, self._is_late, subscription)

    def _expect_no_more(self, subscription: Subscription) -> None:
        timer = self._expected.pop(subscription, None)
        if timer is not None:
            timer.cancel()

    def _is_late(self, subscription: Subscription) -> None:
        del self._expected[subscription]
        if not subscription.is_in_use:
            self._tasks.spawn("let go of a reader", self._let_go(subscription))

    async def unsubscribe(self, member: SubscribedConsumer, *, force: bool) -> None:
        """Drop the subscription if this is its only consumer, or (`force`) even if it has others.

        Raises:
            ConsumerBusy: others are connected.
            MetadataError: it is not dropped.
        """
        subscription = member.subscription
        if not isinstance(subscription, Subscription):
            subscription.remove(member)
            return
        async with subscription.changing:
            if not force and subscription.consumers != [member]:
                raise ConsumerBusy("Unconnected or shared consumer attempting to unsubscribe")
            subscription.remove(member)
            await self._drop(subscription)

    async def delete(self, partition: Partition, name: str, *, force: bool = False) -> None:
        """Drop a subscription.

        Raises:
            SubscriptionNotFound: there is none.
            SubscriptionBusy: consumers are connected.
            MetadataError: it is not dropped.
        """
        partition.topic.check_exists()
        subscription = self.find(partition, name)
        key = CursorKey(name, partition.topic.name.full, partition.index)
        if subscription is None:
            if self._cursors.get(key) is None:
                raise SubscriptionNotFound(f"Subscription {name} not found")
            if not force and self._consumes(name, key.topic):
                raise SubscriptionBusy("Subscription has active connected consumers")
            await self._cursors.drop([key])
            return
        async with subscription.changing:
            if subscription.is_in_use and not force:
                raise SubscriptionBusy("Subscription has active connected consumers")
            await self._drop(subscription)

    async def _drop(self, subscription: Subscription) -> None:
        subscription.disconnect_all()
        if subscription.is_durable:
            # The store tells an owner that its cursor is gone; this one knows.
            self._cursors.detach(subscription.key, subscription)
            subscription.is_attached = False
            self._stored.forget(subscription)
            if not subscription.partition.topic.is_deleted:  # another one may have its name by now
                await self._cursors.drop([subscription.key])
        self._forget(subscription)

    async def create(
        self,
        partition: Partition,
        name: str,
        offset: int,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a durable subscription at `offset`; false if one with that name exists.

        Raises:
            SubscriptionNotAllowed: the name or the properties are too large, or the topic may have no other one.
            MetadataError: it is not made.
        """
        partition.topic.check_exists()
        key = CursorKey(name, partition.topic.name.full, partition.index)
        if self._cursors.newest(key) is not None or self.find(partition, name) is not None:
            return False
        check_name(name)
        self.check_count(partition, name)
        kept = kept_properties(properties or {})
        cursor = Cursor(offset, commit_timestamp_ms=self._clock.now_ms(), holds_data=True, properties=kept)
        await self._cursors.commit({key: cursor})
        return True

    async def close_partition(self, partition: Partition) -> None:
        """Close the consumers of a partition that is unloaded or deleted; positions are stored."""
        for one in self.volatile(partition):
            one.disconnect_all()
        there = self.of(partition)
        for subscription in there:
            subscription.disconnect_all()
        await asyncio.gather(*map(self._let_go, there))

    def abandon(self, partition: Partition) -> None:
        """Close the consumers of a partition that another broker has, and store nothing: what is stored is its."""
        for one in self.volatile(partition):
            one.disconnect_all()
        for subscription in self.of(partition):
            subscription.disconnect_all()
            self._forget(subscription)

    def apply_limits(self, partition: Partition) -> None:
        """The partition's policies may have changed: apply the current limits to its subscriptions."""
        unacked = self._policies_of(partition.topic.name).unacked_limits
        for subscription in self.of(partition):
            subscription.pace.change(self._limits.of(partition, subscription.name))
            subscription.limit_unacked(unacked)
        for fleeting in self.volatile(partition):
            fleeting.own_limit = self._limits.own(partition, fleeting.name)

    def terminated(self, partition: Partition) -> None:
        """The partition has its last message: notify consumers that have acknowledged everything."""
        for subscription in self.of(partition):
            subscription.tell_end()

    async def close(self) -> None:
        """Store every position, and deliver nothing any more."""
        await self._stored.stop()
        there = [subscription for known in self._open.values() for subscription in known.values()]
        for subscription in there:
            subscription.disconnect_all()
        await asyncio.gather(*map(self._let_go, there))
        await self._tasks.ended()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _no_longer_pending(self, key: CursorKey, ranges: Sequence[Range], committed: bool) -> None:
        found = self._cursors.owner(key)
        if isinstance(found, Subscription):
            if committed:
                found.advance(ranges)
            else:
                found.no_longer_pending(ranges)

    def _make_dispatcher(self, subscription: Subscription, spec: ConsumerSpec) -> Any:
        return make_dispatcher(
            subscription.partition, spec, self._policies_of(subscription.partition.topic.name)
        )
