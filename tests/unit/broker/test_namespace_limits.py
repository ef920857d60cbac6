"""The limit on a namespace's topics: what counts, and that no way of making topics gets around it."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.topics.errors import TooManyTopics
from magnetar.broker.topics.model import NewTopic

from .test_producer_state import settle
from .test_topics import World, run


def named(name: str) -> TopicName:
    return TopicName.parse(name)


async def limited(broker: Broker, limit: int | None) -> None:
    await broker.namespaces.change("public/default", lambda _: {"max_topics_per_namespace": limit})


async def room(broker: Broker) -> int:
    """How many topics more the default namespace takes, as planning one tells."""
    limit = broker.namespaces.policies_of(named("x")).namespace_topics_max
    for count in range(1, limit + 2):
        try:
            broker.topics.plan(NewTopic(named("x"), count))
        except TooManyTopics:
            return count - 1
    raise AssertionError("there is no limit")


def test_each_partition_counts_and_nothing_of_other_domains_and_namespaces() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await limited(broker, 5)
        create = broker.pulsar_topics.create
        await create(named("parts"), 3)
        await create(named("plain"))
        assert await room(broker) == 1
        with pytest.raises(TooManyTopics, match=r"^Exceed maximum number of topics in namespace\.$"):
            await create(named("more"), 2)
        await create(named("non-persistent://public/default/n"), 7)
        await broker.namespaces.create("public/other")
        await create(named("public/other/t"), 7)
        assert await room(broker) == 1
        await create(named("last"))
        with pytest.raises(TooManyTopics):
            await broker.topics.ensure(named("kafkas"))
        assert broker.topics.find(named("kafkas")) is None
        await broker.stop()

    run(scenario())


@pytest.mark.parametrize("limit", [0, None])
def test_without_a_limit_any_number_is_made(limit: int | None) -> None:
    async def scenario() -> None:
        broker = await World().start()
        await limited(broker, 1)
        await limited(broker, limit)
        await broker.pulsar_topics.create(named("parts"), 9)
        await broker.topics.ensure(named("kafkas"))
        await broker.stop()

    run(scenario())


def test_what_is_there_stays_usable_and_may_grow_over_the_limit() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await broker.pulsar_topics.create(named("parts"), 2)
        await limited(broker, 2)
        assert await broker.pulsar_topics.partition_count_or_create("parts") == 2
        assert await broker.topics.ensure(named("parts")) is broker.topics.get(named("parts"))
        await broker.pulsar_topics.grow(named("parts"), 4)
        await limited(broker, 5)
        assert await room(broker) == 1
        await broker.stop()

    run(scenario())


def test_what_is_deleted_makes_room_and_what_could_not_be_does_not() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await limited(broker, 4)
        topic = await world.create(3)
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await broker.delete_topic(topic)
        assert await room(broker) == 1
        await broker.delete_topic(topic)
        assert await room(broker) == 4
        await broker.stop()

    run(scenario())


def test_topics_that_are_made_at_once_do_not_exceed_the_limit_together() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await limited(broker, 3)
        topics = broker.topics
        planned = [topics.plan(NewTopic(named(name), 2)) for name in ("a", "b")]
        with pytest.raises(TooManyTopics):
            await topics.create(planned)
        assert await room(broker) == 3
        world.metadata.hold()
        making = [asyncio.ensure_future(topics.create([one])) for one in planned]
        await settle()
        with pytest.raises(TooManyTopics):
            topics.plan(NewTopic(named("c"), 2))
        world.metadata.release()
        first, second = await asyncio.gather(*making, return_exceptions=True)
        assert (first, type(second)) == (None, TooManyTopics)
        assert [topic.name.local for topic in topics] == ["a"]
        await broker.stop()

    run(scenario())


def test_what_could_not_be_made_leaves_its_room() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await limited(broker, 3)
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await world.create(2)
        assert await room(broker) == 3
        await broker.stop()

    run(scenario())


def test_after_a_restart_what_is_stored_counts() -> None:
    async def scenario() -> None:
        world = World()
        await limited(await world.start(), 4)
        await world.create(3)
        broker = await world.crash()
        assert await room(broker) == 1
        await broker.stop()

    run(scenario())
