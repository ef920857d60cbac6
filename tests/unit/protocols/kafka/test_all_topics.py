"""Small requests that ask for all topics: their answers are made in turns, and count before they are made."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.topics.model import NewTopic
from magnetar.protocols.kafka.admin_configs import ResourceType
from magnetar.protocols.kafka.large import ELEMENTS_PER_TURN
from magnetar.wire.kafka.messages import (
    describe_log_dirs,
    describe_topic_partitions,
    list_config_resources,
    metadata,
)
from magnetar.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from magnetar.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest
from tests.unit.protocols.kafka.wire import Wire, create, until

Run = Callable[..., None]


async def make_many(client: Any, count: int) -> list[str]:
    topics, names = client.broker.topics, [f"n{number:05}" for number in range(count)]
    kafka_name = client.broker.kafka_topics.name
    await topics.create([topics.plan(NewTopic(kafka_name(name), 1)) for name in reversed(names)])
    return names


async def ask_for_all(wire: Wire, what: str) -> list[str]:
    if what == "metadata":
        return [topic.name for topic in (await wire.ask(metadata, 12, MetadataRequest(None))).topics]
    if what == "configs":
        request = ListConfigResourcesRequest([ResourceType.TOPIC])
        answer = await wire.ask(list_config_resources, 1, request)
        return [one.resource_name for one in answer.config_resources]
    answer = await wire.ask(describe_log_dirs, 4, DescribeLogDirsRequest(None))
    return [topic.name for topic in answer.results[0].topics]


@pytest.mark.parametrize("what", ["metadata", "configs", "log dirs"])
def test_what_asks_for_all_topics_is_answered_in_turns_when_there_is_room_for_the_answer(
    with_broker: Run, what: str
) -> None:
    """The answer to thirty bytes had 50 MB of objects that were counted nowhere."""

    async def scenario(client: Any) -> None:
        names = await make_many(client, 1_500)
        memory, large = client.service.memory, client.service.large
        wire = Wire(client)
        await memory.take_objects(0, memory.bytes_max)
        asking = asyncio.ensure_future(ask_for_all(wire, what))
        await until(lambda: memory.objects_waiting)
        turns = large.turns
        memory.give_objects(memory.bytes_max)
        await asyncio.sleep(0)
        assert memory.objects_used >= 200 * len(names)
        assert sorted(await asking) == names
        assert large.turns - turns >= len(names) // ELEMENTS_PER_TURN
        await until(lambda: not memory.objects_used)
        # Also when its client does not wait for it.
        await memory.take_objects(0, memory.bytes_max)
        asking = asyncio.ensure_future(ask_for_all(wire, what))
        await until(lambda: memory.objects_waiting)
        wire.session.closed()
        memory.give_objects(memory.bytes_max)
        await until(lambda: not memory.objects_used)
        asking.cancel()

    with_broker(scenario)


def test_pages_of_topics_are_found_and_described_in_turns(with_broker: Run) -> None:
    """Each page of DescribeTopicPartitions looked at all names, and sorted them, in one turn of the event loop."""

    async def scenario(client: Any) -> None:
        names = await make_many(client, 2_500)
        wire, large = Wire(client), client.service.large
        found: list[str] = []
        cursor = None
        turns = large.turns
        while True:
            request = DescribeTopicPartitionsRequest([], 700, cursor)
            page = await wire.ask(describe_topic_partitions, 0, request)
            found += [topic.name for topic in page.topics]
            cursor = page.next_cursor
            if cursor is None:
                break
            assert len(page.topics) == 700
            # What is deleted while it is listed is not there.
            gone = names.pop()
            await client.broker.delete_topic(client.broker.topics.get(client.broker.kafka_topics.name(gone)))
        assert found == names
        assert large.turns - turns >= 4 * (2_500 // 500) + 2_500 // 50
        wire.session.closed()

    with_broker(scenario)


def test_a_topic_that_is_there_all_the_while_is_listed_once(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        kept = await make_many(client, 1_500)
        wire, broker = Wire(client), client.broker
        for name in ("gone", "again"):
            await create(client, name, 1)
        asking = asyncio.ensure_future(ask_for_all(wire, "metadata"))
        await asyncio.sleep(0)
        for name in ("gone", "again"):
            await broker.delete_topic(broker.topics.get(broker.kafka_topics.name(name)))
        await create(client, "again", 1)
        await create(client, "new", 1)
        assert not asking.done()
        found = await asking
        assert len(found) == len(set(found))
        assert {*kept} <= {*found} <= {*kept, "gone", "again", "new"}
        wire.session.closed()

    with_broker(scenario)


def test_a_request_for_all_topics_that_is_itself_large_is_none(with_broker: Run) -> None:
    """It would wait for memory that it holds."""

    async def scenario(client: Any) -> None:
        await make_many(client, 1_100)
        wire = Wire(client)
        wire.feed(list_config_resources, 1, ListConfigResourcesRequest([ResourceType.TOPIC] * 16_384))
        await until(lambda: wire.is_closed)
        await until(lambda: not client.service.memory.objects_used)

    with_broker(scenario)
