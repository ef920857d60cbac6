"""Non-persistent topics: consumers that are there and have asked get a message, all else is dropped and counted."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.errors import PolicyViolation
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.broker.subscriptions.model import ConsumerSpec, SubscribeRequest, SubscriptionType
from magnetar.broker.subscriptions.volatile import NonPersistentPartition
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

from .driver import Client, World, settle

NAME = TopicName("public", "default", "np", persistent=False)


class FleetingWorld(World):
    @property
    def fleeting(self) -> NonPersistentPartition:
        found = self.broker.topics.get(NAME).partition(0)
        assert isinstance(found, NonPersistentPartition)
        return found

    async def say(self, text: bytes, key: str | None = None) -> tuple[int, int]:
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key=key)
        data = memoryview(frame_entry(metadata, text))
        told: list[Exception | None] = []
        entry = self.fleeting.publish(data, read_entry(data, verify=True), 1, told.append)
        await settle()
        assert told == [None]
        return entry.ledger_id, entry.entry_id

    async def listener(
        self, kind: SubscriptionType, permits: int = 100, consumer: str = "c", name: str = "s"
    ) -> Client:
        client = Client(self, consumer)
        wanted = SubscribeRequest(name, ConsumerSpec(consumer, kind))
        client.member = await self.broker.subscriptions.subscribe(self.fleeting, wanted, client)
        client.flow(permits)
        return client


def fleeting(test: Callable[[FleetingWorld], Awaitable[None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def main() -> None:
            world = FleetingWorld()
            await world.start()
            await world.broker.topics.create([world.broker.topics.plan(NewTopic(NAME, is_partitioned=False))])
            await test(world)
            await world.stop()

        asyncio.run(main())

    del run.__wrapped__
    return run


def heard(client: Client) -> list[bytes]:
    return [bytes(one.payload)[-2:] for one in client.got]


@fleeting
async def test_what_no_consumer_asked_for_is_dropped_and_nothing_is_stored(world: FleetingWorld) -> None:
    assert await world.say(b"m1") == (0, 0)
    client = await world.listener(SubscriptionType.EXCLUSIVE, permits=1)
    await world.say(b"m2")
    await world.say(b"m3")
    assert heard(client) == [b"m2"]
    assert client.positions == [(0, 0)]
    assert world.fleeting.subscriptions["s"].messages_dropped == 1
    assert world.fleeting.messages_in == 3
    assert world.fleeting.log.next_offset == 0
    assert world.broker.cursors.subscriptions() == []


@fleeting
async def test_a_slow_peer_loses_what_comes_meanwhile_and_keeps_its_permits(world: FleetingWorld) -> None:
    client = await world.listener(SubscriptionType.EXCLUSIVE, permits=1)
    client.is_writable = False
    await world.say(b"m1")
    client.writable(True)
    await world.say(b"m2")
    assert heard(client) == [b"m2"]


@fleeting
async def test_every_subscription_gets_its_own_copy(world: FleetingWorld) -> None:
    first = await world.listener(SubscriptionType.EXCLUSIVE, name="a")
    second = await world.listener(SubscriptionType.SHARED, name="b")
    await world.say(b"m1")
    assert (heard(first), heard(second)) == ([b"m1"], [b"m1"])


@fleeting
async def test_shared_consumers_take_turns_without_acknowledging(world: FleetingWorld) -> None:
    first = await world.listener(SubscriptionType.SHARED, permits=1_000, consumer="a")
    second = await world.listener(SubscriptionType.SHARED, permits=1_000, consumer="b")
    for number in range(80):
        await world.say(b"%02d" % number)
    assert sorted(heard(first) + heard(second)) == [b"%02d" % number for number in range(80)]
    assert len(first.got) >= 20 <= len(second.got)


@fleeting
async def test_key_shared_keeps_a_key_at_one_consumer(world: FleetingWorld) -> None:
    clients = [await world.listener(SubscriptionType.KEY_SHARED, consumer=name) for name in "abc"]
    for number in range(60):
        await world.say(b"%02d" % (number % 10), key=f"k{number % 10}")
    assert sum(len(client.got) for client in clients) == 60
    sets = [set(heard(client)) for client in clients]
    assert sum(map(len, sets)) == 10


@fleeting
async def test_a_key_whose_owner_has_no_permits_is_dropped_and_not_kept(world: FleetingWorld) -> None:
    clients = [await world.listener(SubscriptionType.KEY_SHARED, permits=1, consumer=name) for name in "ab"]
    for _ in range(5):
        await world.say(b"m1", key="k")
    for client in clients:
        client.flow(100)
    await settle()
    assert sum(len(client.got) for client in clients) == 1
    assert world.fleeting.subscriptions["s"].messages_dropped == 4


@fleeting
async def test_failover_goes_on_with_the_next_consumer(world: FleetingWorld) -> None:
    first = await world.listener(SubscriptionType.FAILOVER, consumer="a")
    second = await world.listener(SubscriptionType.FAILOVER, consumer="b")
    await world.say(b"m1")
    active = first if first.active[-1] else second
    other = second if active is first else first
    await active.leave()
    await world.say(b"m2")
    assert (heard(active), heard(other)) == ([b"m1"], [b"m2"])


@fleeting
async def test_exclusive_is_exclusive_and_compacted_reading_is_not_for_it(world: FleetingWorld) -> None:
    await world.listener(SubscriptionType.EXCLUSIVE)
    with pytest.raises(ConsumerBusy):
        await world.listener(SubscriptionType.EXCLUSIVE, consumer="second")
    wanted = SubscribeRequest("r", ConsumerSpec("r", SubscriptionType.EXCLUSIVE, reads_compacted=True))
    with pytest.raises(SubscriptionNotAllowed):
        await world.broker.subscriptions.subscribe(world.fleeting, wanted, Client(world, "r"))


@fleeting
async def test_a_subscription_ends_with_its_consumers_and_with_its_topic(world: FleetingWorld) -> None:
    client = await world.listener(SubscriptionType.EXCLUSIVE)
    await client.leave()
    assert world.fleeting.subscriptions == {}
    client = await world.listener(SubscriptionType.EXCLUSIVE)
    await world.broker.delete_topic(world.broker.topics.get(NAME))
    assert client.is_closed


@fleeting
async def test_kafka_clients_cannot_produce_to_it(world: FleetingWorld) -> None:
    with pytest.raises(PolicyViolation):
        world.fleeting.append(memoryview(bytearray(100)), 0, lambda error: None)


async def limited(world: FleetingWorld, key: str, messages: int) -> None:
    rate = {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": 0,
        "ratePeriodInSecond": 1,
    }
    await world.broker.namespaces.change("public/default", lambda found: {**found, key: rate})


@fleeting
async def test_what_exceeds_a_topics_dispatch_rate_is_dropped_for_all(world: FleetingWorld) -> None:
    clients = [await world.listener(SubscriptionType.EXCLUSIVE, name=name) for name in "ab"]
    await limited(world, "topicDispatchRate", 4)
    for number in range(10):
        await world.say(b"%02d" % number)
    assert heard(clients[0]) == heard(clients[1]) == [b"00", b"01", b"02"], "each copy counts"
    assert [one.messages_dropped for one in world.fleeting.subscriptions.values()] == [7, 7]
    world.clock.advance(1)
    await world.say(b"10")
    await limited(world, "topicDispatchRate", 0)
    await world.say(b"11")
    await world.say(b"12")
    assert heard(clients[0]) == heard(clients[1]) == [b"00", b"01", b"02", b"10", b"11", b"12"]


@fleeting
async def test_a_subscriptions_dispatch_rate_drops_for_it_alone(world: FleetingWorld) -> None:
    first = await world.listener(SubscriptionType.SHARED, name="a")
    await limited(world, "subscriptionDispatchRate", 2)
    for number in range(4):
        await world.say(b"%02d" % number)
    second = await world.listener(SubscriptionType.SHARED, name="b")
    for number in range(4, 8):
        await world.say(b"%02d" % number)
    assert (heard(first), heard(second)) == ([b"00", b"01", b"02"], [b"04", b"05", b"06"])
    world.clock.advance(1)
    await world.say(b"08")
    assert heard(first)[-1] == heard(second)[-1] == b"08"
