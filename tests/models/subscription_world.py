"""A broker with one subscription, its log in memory, and the clients of its consumers, with books beside them.

Everything under test is real: registry, shell, reader, cursor, cursor store, dispatcher.  A client's books say what
it may get: permits, a writable connection, nothing that is acknowledged or that another client has.  `settle` lets
happen what can happen at this instant, and then nothing may wait that a client could have.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.log.partition import Partition
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.dispatch.hashing import slot_of
from magnetar.broker.subscriptions.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.subscriptions.model import (
    AckedId,
    ConsumerSpec,
    Delivery,
    InitialPosition,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.broker.subscriptions.subscription import Subscription
from magnetar.broker.topics.model import NewTopic
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.entry import Entry
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

NAME = TopicName("public", "default", "t")
SUBSCRIPTION = "s"
ROWS_MAX = 10_000
TURNS = 30  # of the event loop: more than any chain of awaits over stores in memory is long

SHARED, KEY_SHARED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED


@dataclass(frozen=True)
class Published:
    """One entry of the log; it has its position once its ledger is open."""

    number: int
    base: int
    end: int
    entry: Entry
    payload: bytes
    slot: int
    deliver_at_ms: int

    @property
    def offsets(self) -> frozenset[int]:
        return frozenset(range(self.base, self.end))

    @property
    def position(self) -> tuple[int, int]:
        return (int(self.entry.ledger_id), int(self.entry.entry_id))


@dataclass
class Client:
    """The port of one consumer, and what its client knows."""

    world: "World"
    name: str
    permits: int = 0
    is_writable: bool = True
    is_closed: bool = False
    is_dead: bool = False  # its broker was killed: what that still does is not of this world
    has: dict[int, Published] = field(default_factory=dict)  # not acknowledged, by number
    member: SubscribedConsumer = field(init=False)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        if self.is_dead:
            return
        assert self.is_writable, "its connection is full"
        assert not self.is_closed
        for one in deliveries:
            try:
                self.world.delivered(self, one)
            except AssertionError as error:  # the reader would log it and try again
                self.world.troubles.append(error)
                raise

    def active_changed(self, is_active: bool) -> None:
        assert self.world.kind is SubscriptionType.FAILOVER
        if is_active:
            self.world.expected = 0

    def reached_end(self) -> None:
        raise AssertionError("no step has terminated this topic")

    def closed(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    @property
    def outbox(self) -> set[int]:
        """Base offsets of what was given to this consumer and not sent yet."""
        return {unit.base_offset for unit in getattr(self.member, "outbox", ())}


class World:
    """See the module's text."""

    def __init__(self, kind: SubscriptionType, entry_cache_bytes: int, uses_ack_sets: bool) -> None:
        self.kind = kind
        self.is_multi = kind in (SHARED, KEY_SHARED)
        self.uses_ack_sets = uses_ack_sets
        self.store = MemoryLedgerStore()
        self.metadata = MemoryMetadataStore()
        self.clock = FakeClock()
        self.settings = BrokerSettings(entry_cache_bytes=entry_cache_bytes)
        self.broker: Broker
        self.entries: list[Published] = []
        self.acked: set[int] = set()
        self.clients: list[Client] = []
        self.expected = 0  # one active consumer: everything before was delivered since the last rewind
        self.deliveries = 0
        self.names = 0
        self.troubles: list[object] = []  # what a callback or a task has failed of

    async def start(self) -> "World":
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.troubles.append(context))
        self.broker = Broker(self.settings, self.store, self.metadata, self.clock, Nodes([Node(1)]))
        # A cache of two entries is to make subscriptions read again, not to limit what they remember.
        self.broker.subscriptions._environment.rows._max = ROWS_MAX
        await self.broker.start()
        if self.broker.topics.find(NAME) is None:
            await self.broker.topics.create([self.broker.topics.plan(NewTopic(NAME))])
            await self.broker.subscriptions.create(self.partition, SUBSCRIPTION, 0)
        return self

    async def stop(self) -> None:
        await self.broker.stop()

    @property
    def partition(self) -> Partition:
        return self.broker.topics.get(NAME).partition(0)

    @property
    def subscription(self) -> Subscription | None:
        return self.broker.subscriptions.find(self.partition, SUBSCRIPTION)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end if self.entries else 0

    # What may happen.

    async def publish(self, messages: int, key: str, delay_ms: int, size: int) -> None:
        metadata = MessageMetadata(
            producer_name="p",
            sequence_id=len(self.entries),
            publish_time=self.clock.now_ms(),
            partition_key=key,
        )
        at = self.clock.now_ms() + delay_ms if delay_ms else 0
        if at:
            metadata.deliver_at_time = at
        if messages > 1:
            metadata.num_messages_in_batch = messages
        data = frame_entry(metadata, b"x" * (8 * messages + size))
        view = read_entry(memoryview(data), verify=True)
        entry = self.partition.publish(memoryview(data), view, self.clock.now_ms(), lambda error: None)
        published = Published(
            len(self.entries), entry.base_offset, entry.last_offset + 1, entry, bytes(data), slot_of(key.encode()), at
        )  # fmt: skip
        assert published.base == self.end_offset
        self.entries.append(published)
        await asyncio.sleep(0)

    async def join(self) -> Client:
        self.names += 1
        client = Client(self, f"c{self.names}")
        wanted = SubscribeRequest(
            SUBSCRIPTION, ConsumerSpec(client.name, self.kind), initial_position=InitialPosition.EARLIEST
        )
        if not self.clients:
            self.expected = 0
        client.member = await self.broker.subscriptions.subscribe(self.partition, wanted, client)
        self.clients.append(client)
        return client

    async def leave(self, client: Client) -> None:
        self.clients.remove(client)
        await self.broker.subscriptions.leave(client.member)

    def flow(self, client: Client, permits: int) -> None:
        client.permits += permits
        client.member.subscription.flow(client.member, permits)

    def set_writable(self, client: Client, is_writable: bool) -> None:
        client.is_writable = is_writable
        client.member.subscription.writable(client.member, is_writable)

    async def ack(self, client: Client, chosen: Iterable[Published]) -> None:
        chosen = list(chosen)
        self._acknowledged(offset for one in chosen for offset in one.offsets)
        ids = [AckedId(*one.position) for one in chosen]
        await self._wait_for(client.member.subscription.acknowledge(client.member, ids, cumulative=False))

    async def ack_up_to(self, client: Client, last: Published) -> None:
        self._acknowledged(range(last.end))
        ids = [AckedId(*last.position)]
        await self._wait_for(client.member.subscription.acknowledge(client.member, ids, cumulative=True))

    async def ack_part(self, client: Client, one: Published, offsets: set[int]) -> None:
        """Acknowledge some messages of a batch, by an ack set that has the others' bits."""
        bits = 0
        for index in range(one.end - one.base):
            bits |= (one.base + index not in offsets) << index
        words = [bits >> shift & (1 << 64) - 1 for shift in range(0, one.end - one.base, 64)]
        self._acknowledged(offsets)
        ids = [AckedId(*one.position, words)]
        await self._wait_for(client.member.subscription.acknowledge(client.member, ids, cumulative=False))

    async def ack_nonsense(self, client: Client) -> None:
        ids = [
            AckedId(99, 0),
            AckedId(0, 1 << 40),
            AckedId(self.entries[-1].position[0] if self.entries else 0, 9999),
        ]
        await self._wait_for(client.member.subscription.acknowledge(client.member, ids, cumulative=False))

    async def _wait_for(self, later: Any) -> None:
        if later is not None:
            await later

    def _acknowledged(self, offsets: Iterable[int]) -> None:
        self.acked.update(offsets)
        for client in self.clients:
            for number, one in list(client.has.items()):
                if one.offsets <= self.acked:
                    del client.has[number]

    def skip_to(self, offset: int) -> None:
        subscription = self.subscription
        if subscription is not None:
            self._acknowledged(range(offset))
            subscription.skip_to(offset)

    def nack(self, client: Client, chosen: Iterable[Published] | None) -> None:
        if not self.is_multi:
            subscription = self.subscription
            if subscription is not None and subscription.active_consumer is client.member:
                self.expected = 0
            client.member.subscription.redeliver(client.member, None, None)
            return
        numbers = set(client.has) if chosen is None else {one.number for one in chosen}
        where = None if chosen is None else [self.entries[number].position for number in sorted(numbers)]
        for number in numbers:
            client.has.pop(number, None)
        client.member.subscription.redeliver(client.member, where, None)

    async def seek(self, one: Published) -> None:
        subscription = self.subscription
        if subscription is None:
            return
        await self.broker.subscriptions.seek(
            subscription, positions.offset_of(self.partition.log, *one.position)
        )
        self.acked = set(range(one.base))
        assert all(client.is_closed for client in self.clients)
        self.clients.clear()

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def kill(self) -> None:
        """The process ends without a word; what was acknowledged since the position was stored comes again."""
        while self.partition.log.high_watermark < self.end_offset:
            await self.turn()  # what was published is to be durable: its loss is not the subject here
        for job in self.broker.upkeep.jobs:
            job.cancel()
        for task in self.broker._environment.tasks:
            task.cancel()
        for client in self.clients:
            client.is_dead = True
        await self.turn()
        self.clients.clear()
        self.clock = FakeClock(self.clock.now_ms())  # timers die, too
        self.store = self.store.crash()
        await self.start()
        kept = self._cursor_offsets()
        assert kept <= self.acked, f"{sorted(kept - self.acked)} were never acknowledged"
        self.acked = kept

    def _cursor_offsets(self) -> set[int]:
        cursor = self.broker.cursors.get(CursorKey(SUBSCRIPTION, NAME.full, 0))
        assert cursor is not None
        offsets = set(range(cursor.mark_delete))
        for start, end in cursor.ranges:
            offsets.update(range(start, end))
        return offsets

    # What must hold.

    def delivered(self, client: Client, one: Delivery) -> None:
        self.deliveries += 1
        (entry,) = [each for each in self.entries if each.position == (one.ledger_id, one.entry_id)]
        assert bytes(one.payload) == entry.payload
        left = entry.offsets - self.acked
        assert left, f"{entry.number} is acknowledged"
        assert client.permits > 0, "it did not ask for more"
        client.permits -= entry.end - entry.base
        if one.ack_set:
            shown = {
                entry.base + i for i in range(entry.end - entry.base) if one.ack_set[i // 64] >> i % 64 & 1
            }
            assert shown == left, f"the ack set shows {shown} of {left}"
        if not self.is_multi:
            skipped = set(range(self.expected, entry.base)) - self.acked
            assert entry.base >= self.expected, f"{entry.number} comes after what follows it"
            assert not skipped, f"{sorted(skipped)} were skipped"
            self.expected = entry.end
            client.has[entry.number] = entry
            return
        assert entry.deliver_at_ms <= self.clock.now_ms(), "too early"
        for other in self.clients:
            assert entry.number not in other.has, f"{other.name} has {entry.number}"
            if self.kind is KEY_SHARED and other is not client:
                assert all(held.slot != entry.slot for held in other.has.values()), "a key at two consumers"
        client.has[entry.number] = entry

    @staticmethod
    async def turn() -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        await self.turn()
        while self._is_reading():
            await self.turn()
        assert not self.troubles, self.troubles
        subscription = self.subscription
        if subscription is not None and subscription.is_in_use:
            assert subscription.backlog() == self.end_offset - len(self.acked)
            assert {client.member for client in self.clients} == set(subscription.consumers)
        for client in self.clients:
            assert not client.is_closed
            assert not (client.is_writable and client.outbox), f"{client.name} could have its outbox"
        if not self.is_multi:
            self._check_one_active()
            return
        taken = {number for client in self.clients for number in client.has}
        boxed = {base for client in self.clients for base in client.outbox}
        waiting = [
            entry
            for entry in self.entries
            if entry.number not in taken
            and entry.base not in boxed
            and not entry.offsets <= self.acked
            and entry.deliver_at_ms + 1_000 <= self.clock.now_ms()
        ]
        for entry in waiting:
            assert not self._could_go(entry, waiting), f"{entry.number} waits, and a client could have it"

    def _is_reading(self) -> bool:
        """Whether entries are on their way from the store."""
        subscription = self.subscription
        if subscription is None:
            return False
        reader = subscription._reader
        return (
            reader._reading is not None
            or reader._is_scheduled
            or any(one.is_loading for one in subscription.consumers)
        )

    def _check_one_active(self) -> None:
        subscription = self.subscription
        active = None if subscription is None else subscription.active_consumer
        for client in self.clients:
            if client.member is active and client.permits > 0 and client.is_writable:
                behind = set(range(self.expected, self.end_offset)) - self.acked
                assert not behind, f"{sorted(behind)} wait for {client}"

    def _could_go(self, entry: Published, waiting: list[Published]) -> bool:
        free = [client for client in self.clients if client.permits > 0 and client.is_writable]
        if self.kind is SHARED or not free:
            return bool(free)
        subscription = self.subscription
        assert subscription is not None
        dispatcher = subscription.dispatcher
        if not isinstance(dispatcher, KeySharedDispatcher):
            return False
        owner = dispatcher.owner(entry.slot)
        if owner not in [client.member.state for client in free]:
            return False
        older = [other for other in waiting if other.slot == entry.slot and other.number < entry.number]
        drained = all(
            held.slot != entry.slot
            for client in self.clients
            if client.member.state is not owner
            for held in [*client.has.values(), *(self._at(base) for base in client.outbox)]
        )
        return drained and not older

    def _at(self, base: int) -> Published:
        return next(entry for entry in self.entries if entry.base == base)

    async def drain(self) -> None:
        """All clients behave: in the end everything is acknowledged."""
        if not self.clients:
            await self.join()
        for _ in range(4 * len(self.entries) + 20):
            if len(self.acked) == self.end_offset:
                return
            for client in self.clients:
                self.set_writable(client, True)
                self.flow(client, 1_000)
            await self.advance(1.0)
            await self.settle()
            for client in self.clients:
                await self.ack(client, list(client.has.values()))
        lost = sorted(set(range(self.end_offset)) - self.acked)
        raise AssertionError(f"{len(lost)} messages never came, the first is {lost[0]}")
