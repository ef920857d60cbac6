"""What a deleted topic leaves in memory: nothing that only the cycle collector can free (`circles.py`)."""

import asyncio
from functools import partial

import pytest

from magnetar.base.errors import StorageError
from magnetar.base.names import TopicName
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.topics.model import NewTopic
from magnetar.testing.pulsar import TIMEOUT_S, PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand
from tests.unit.circles import circles_of
from tests.unit.protocols.kafka.conftest import record_batch
from tests.unit.protocols.pulsar.pulsar_consuming import (
    EXCLUSIVE,
    KEY_SHARED,
    SHARED,
    WithDoor,
    publish,
    subscribe,
)

NAME = TopicName.parse("gone")


async def use_and_delete(door: PulsarDoor, partition_count: int, sub_type: int = EXCLUSIVE) -> None:
    """Both kinds of clients use the topic, and are there when it is deleted."""
    broker = door.broker
    is_partitioned = partition_count > 1
    await broker.topics.create(
        [broker.topics.plan(NewTopic(NAME, partition_count, is_partitioned=is_partitioned))]
    )
    topic = broker.topics.get(NAME)
    partition = topic.partition(partition_count - 1)
    now_ms = broker.clock.now_ms()
    for producer_id in (-1, 7):
        durable: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        partition.append(memoryview(record_batch(3, now_ms, producer_id)), now_ms, durable.set_result)
        assert await durable is None
    client = await door.connected()
    (pulsar_name, *_) = topic.pulsar_names
    await publish(client, 3, topic=pulsar_name)
    await subscribe(client, topic=pulsar_name, permits=2, subType=sub_type)
    await client.hear(BaseCommand.MESSAGE)
    await broker.delete_topic(topic)
    async with asyncio.timeout(TIMEOUT_S):
        while broker.topics.deleted.ids():
            await asyncio.sleep(0.001)
            door.clock.advance(1.0)
    client.leave()
    for _ in range(20):  # what has ended is told those that wait for it
        await asyncio.sleep(0)


@pytest.mark.parametrize("partition_count", [1, 3])
def test_a_deleted_topic_leaves_no_circle(with_door: WithDoor, partition_count: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        assert not await circles_of(partial(use_and_delete, door, partition_count))

    with_door(scenario)


@pytest.mark.parametrize("sub_type", [SHARED, KEY_SHARED], ids=["shared", "by key"])
def test_what_consumers_held_of_it_leaves_no_circle(with_door: WithDoor, sub_type: int) -> None:
    async def scenario(door: PulsarDoor) -> None:
        assert not await circles_of(partial(use_and_delete, door, 1, sub_type))

    with_door(scenario)


def test_a_late_call_finds_the_deleted_topic_and_its_partition(with_door: WithDoor) -> None:
    async def scenario(door: PulsarDoor) -> None:
        broker = door.broker
        await broker.topics.create([broker.topics.plan(NewTopic(NAME, 1))])
        topic = broker.topics.get(NAME)
        partition = topic.partition(0)
        await broker.delete_topic(topic)
        assert topic.partition(0) is partition
        assert str(partition) == f"{NAME} partition 0"
        with pytest.raises(UnknownTopic):
            partition.topic.check_exists()
        now_ms = broker.clock.now_ms()
        with pytest.raises(StorageError, match="is being closed"):
            partition.append(memoryview(record_batch(1, now_ms)), now_ms, lambda _: None)

    with_door(scenario)
