"""A broker over stores in memory, with Pulsar consumers that are plain objects: `World.sub` connects one, `settle` lets
everything happen that can happen at this instant.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.log.partition import Partition
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
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
from magnetar.broker.topics.topic import Topic
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

NAME = TopicName("public", "default", "t")
TURNS = 30


Scenario = Callable[["World"], Awaitable[None]]


def scenario(test: Scenario) -> Callable[[], None]:
    """A test of a coroutine that is given a started `World`."""

    @wraps(test)
    def run() -> None:
        async def main() -> None:
            world = await World().start()
            await test(world)
            await world.stop()

        asyncio.run(main())

    del run.__wrapped__  # pytest would take the scenario's parameter for a fixture
    return run


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Client:
    """What a Pulsar client sees of its consumer."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.got: list[Delivery] = []
        self.active: list[bool] = []
        self.ends = 0
        self.is_closed = False
        self.is_writable = True
        self.member: SubscribedConsumer

    # the port

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        assert self.is_writable
        assert not self.is_closed
        self.got.extend(deliveries)

    def active_changed(self, is_active: bool) -> None:
        self.active.append(is_active)

    def reached_end(self) -> None:
        self.ends += 1

    def closed(self) -> None:
        assert not self.is_closed
        self.is_closed = True

    # what it does

    def flow(self, permits: int = 1000) -> None:
        self.member.subscription.flow(self.member, permits)

    def ack(self, *ids: tuple[Any, ...], cumulative: bool = False) -> Any:
        acked = [AckedId(*one) for one in ids]
        return self.member.subscription.acknowledge(self.member, acked, cumulative=cumulative)

    def nack(self, *ids: tuple[int, int], epoch: int | None = None) -> None:
        self.member.subscription.redeliver(self.member, ids or None, epoch)

    def writable(self, is_writable: bool) -> None:
        self.is_writable = is_writable
        self.member.subscription.writable(self.member, is_writable)

    async def leave(self) -> None:
        await self.world.broker.subscriptions.leave(self.member)

    @property
    def entries(self) -> list[int]:
        """Entry ids as they came."""
        return [one.entry_id for one in self.got]

    @property
    def positions(self) -> list[tuple[int, int]]:
        return [(one.ledger_id, one.entry_id) for one in self.got]

    def taken(self) -> list[int]:
        """As `entries`, and forget them."""
        entries, self.got = self.entries, []
        return entries


def acknowledging(client: Client, *positions: tuple[int, int]) -> "asyncio.Future[None]":
    """One long command with these ids, each of which is a piece of its own."""
    pieces = [[AckedId(*position)] for position in positions]
    member = client.member
    later = member.subscription.acknowledge_many(member, pieces, cumulative=False)
    assert later is not None
    return asyncio.ensure_future(later)


class World:
    """See the module's text."""

    def __init__(self, entry_cache_bytes: int = 1 << 28) -> None:
        self.store = MemoryLedgerStore()
        self.metadata = MemoryMetadataStore()
        self.clock = FakeClock()
        self.settings = BrokerSettings(entry_cache_bytes=entry_cache_bytes)
        self.broker: Broker
        self._sequence = 0

    async def start(self) -> "World":
        self.broker = Broker(self.settings, self.store, self.metadata, self.clock, Nodes([Node(1)]))
        await self.broker.start()
        if self.broker.topics.find(NAME) is None:
            await self.broker.topics.create([self.broker.topics.plan(NewTopic(NAME))])
        return self

    async def crash(self) -> None:
        """End without a word; what was durable is there at the next start."""
        for job in self.broker.upkeep.jobs:
            job.cancel()
        for task in self.broker._environment.tasks:
            task.cancel()
        await settle()
        # What is left of the old process reaches neither the stores nor the clock of the new one.
        self.store = self.store.crash()
        kept = MemoryMetadataStore()
        kept._values = dict(self.metadata._values)
        self.metadata = kept
        self.clock = FakeClock(self.clock.now_ms())
        await self.start()

    @property
    def topic(self) -> Topic:
        return self.broker.topics.get(NAME)

    @property
    def partition(self) -> Partition:
        return self.topic.partition(0)

    async def publish(self, count: int = 1, messages: int = 1, payload: bytes = b"x", **fields: Any) -> None:
        """`count` entries of so many messages each; more than one message makes a batch."""
        for _ in range(count):
            self._sequence += 1
            metadata = MessageMetadata(
                producer_name="p", sequence_id=self._sequence, publish_time=self.clock.now_ms()
            )
            for name, value in fields.items():
                setattr(metadata, name, value)
            if messages > 1 or fields.get("num_messages_in_batch"):
                metadata.num_messages_in_batch = messages
            data = memoryview(frame_entry(metadata, payload * 8 * messages))
            view = read_entry(data, verify=True)
            self.partition.publish(data, view, self.clock.now_ms(), lambda error: None)
        await settle()

    async def sub(
        self,
        name: str = "s",
        kind: SubscriptionType = SubscriptionType.EXCLUSIVE,
        permits: int = 1000,
        consumer: str = "c",
        spec: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Client:
        """A connected consumer that has asked for `permits` messages."""
        fields.setdefault("initial_position", InitialPosition.EARLIEST)
        client = Client(self, consumer)
        wanted = SubscribeRequest(name, ConsumerSpec(consumer, kind, **(spec or {})), **fields)
        client.member = await self.broker.subscriptions.subscribe(self.partition, wanted, client)
        if permits:
            client.flow(permits)
        await settle()
        return client

    @property
    def key(self) -> CursorKey:
        return CursorKey("s", NAME.full, 0)

    async def position_at(self, offset: int) -> tuple[int, int]:
        entry = await self.partition.log.entry_at(offset)
        assert entry is not None
        return entry.ledger_id, entry.entry_id

    async def seek(self, client: Client, position: tuple[int, int]) -> None:
        find = positions.offset_of(self.partition.log, *position)
        subscription = client.member.subscription
        assert isinstance(subscription, Subscription)
        await self.broker.subscriptions.seek(subscription, find)

    def subscription(self, name: str = "s") -> Subscription | None:
        return self.broker.subscriptions.find(self.partition, name)

    def cursor(self, name: str = "s") -> Cursor:
        """As all clients see it, live or not."""
        found = self.broker.cursors.get(CursorKey(name, NAME.full, 0))
        assert found is not None
        return found

    async def stored_mark_delete(self, name: str = "s") -> int | None:
        """What a start after a kill would find."""
        again = CursorStore(self.metadata, identity=self.broker.topics.identity)
        await again.load()
        found = again.get(CursorKey(name, NAME.full, 0))
        return None if found is None else found.mark_delete

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle()

    async def stop(self) -> None:
        await self.broker.stop()
