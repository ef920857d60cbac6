"""Clients that use a topic while it is being deleted: that wrote before, come in between, or come late."""

import asyncio
from collections.abc import Sequence

import pytest

from magnetar.base.errors import MetadataError
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.producers.model import ProducerSpec
from magnetar.broker.producers.producer import Producer
from magnetar.broker.subscriptions.model import ConsumerSpec, SubscribeRequest, SubscriptionType
from magnetar.broker.topics.topic import topic_path
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.metadata.store import CommitStep

from .noting_producers import Port
from .subscriptions import driver
from .test_deletion import KEY, commit, has_nothing
from .test_producer_state import settle
from .test_topics import NAME, World, run


def test_a_deletion_comes_after_commits_that_were_queued_before_it_however_slow_the_store_is() -> None:
    """One that overtook them would leave their positions in memory, for the next topic of the name."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        store = world.metadata.commit
        turns: list[asyncio.Event] = []

        async def one_at_a_time(operations: Sequence[CommitStep]) -> None:
            turns.append(asyncio.Event())
            await turns[-1].wait()
            await store(operations)

        world.metadata.commit = one_at_a_time  # type: ignore[method-assign]
        on_its_way = asyncio.ensure_future(commit(broker, 15))
        await settle()
        behind_it = asyncio.ensure_future(commit(broker, 16, "h"))
        await settle()
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        again = asyncio.ensure_future(broker.topics.ensure(NAME))
        await settle()
        for turn in turns:  # it grows meanwhile
            turn.set()
            await settle()
        assert await on_its_way is GroupError.NONE
        assert await behind_it is GroupError.NONE
        await deletion
        assert (await again).topic_id != topic.topic_id
        has_nothing(broker)
        world.metadata.commit = store  # type: ignore[method-assign]
        has_nothing(await world.crash())
        await world.broker.stop()

    run(scenario())


def test_no_client_finds_a_topic_that_is_being_deleted_nor_writes_a_cursor_for_it() -> None:
    """Also who has found it before, by the name that is looked up but once."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        assert broker.kafka_topics.get("t") is topic
        world.metadata.hold()
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        for _ in range(2):
            with pytest.raises(UnknownTopic):
                broker.kafka_topics.get("t")
            with pytest.raises(UnknownTopic):
                await broker.cursors.commit({KEY: Cursor(1)})
            assert broker.groups.offsets.catalogue.exists(NAME.full, 0) is False
            world.metadata.release()
            await deletion
        await broker.stop()

    run(scenario())


@driver.scenario
async def test_a_client_that_comes_before_a_deletion_has_its_turn_is_sent_away(world: driver.World) -> None:
    """The topic's clients had been sent away, and it waited for a change of the topic's settings."""
    broker, partition = world.broker, world.partition
    before = await world.sub("before")
    async with broker.topics.changing(world.topic):
        deletion = asyncio.ensure_future(broker.delete_topic(world.topic))
        await settle()
        assert before.is_closed
        late = await world.sub("late")
        reader = await world.sub("reader", is_durable=False)
        port = Port()
        producer = Producer(ProducerSpec("p"), port, 0)
        await broker.producers.of(partition).admit(producer)
        assert not late.is_closed
    await deletion
    assert late.is_closed
    assert reader.is_closed
    assert port.events == ["closed"]
    assert broker.producers._of == {}


@driver.scenario
async def test_positions_are_stored_before_a_deletion_which_may_fail(world: driver.World) -> None:
    await world.publish(3)
    client = await world.sub()
    client.ack(client.positions[0])
    store = world.metadata.commit

    async def commit(operations: Sequence[CommitStep]) -> None:
        if any(one.path == topic_path(driver.NAME) for one in operations):
            raise MetadataError("no")
        await store(operations)

    world.metadata.commit = commit  # type: ignore[method-assign]
    with pytest.raises(MetadataError):
        await world.broker.delete_topic(world.topic)
    assert client.is_closed
    assert await world.stored_mark_delete() == 1
    found = world.broker.cursors.get(CursorKey("s", driver.NAME.full, 0))
    assert found is not None
    assert found.mark_delete == 1


@driver.scenario
async def test_a_consumer_whose_subscription_is_made_while_its_topic_is_deleted_is_refused(
    world: driver.World,
) -> None:
    async with world.broker.topics.changing(world.topic):
        deletion = asyncio.ensure_future(world.broker.delete_topic(world.topic))
        await settle()
        world.metadata.hold()
        late = asyncio.ensure_future(world.sub("late"))
        await settle()
    await settle()
    world.metadata.release()
    await deletion
    with pytest.raises(UnknownTopic):
        await late
    assert world.broker.cursors._owners == {}


@driver.scenario
async def test_a_reader_that_comes_late_is_refused(world: driver.World) -> None:
    partition = world.partition
    await world.broker.delete_topic(world.topic)
    wanted = SubscribeRequest("r", ConsumerSpec("c", SubscriptionType.EXCLUSIVE), is_durable=False)
    with pytest.raises(UnknownTopic):
        await world.broker.subscriptions.subscribe(partition, wanted, driver.Client(world, "c"))


def test_a_seek_that_looks_for_its_message_while_the_topic_is_made_again_moves_nothing() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        assert await commit(broker, 15) is GroupError.NONE
        found = asyncio.Event()

        async def find() -> int:
            await found.wait()
            return 7

        seek = asyncio.ensure_future(broker.subscription_admin.reset(topic.partition(0), "g", find))
        await settle()
        await broker.delete_topic(topic)
        await world.create()
        assert await commit(broker, 3) is GroupError.NONE
        found.set()
        with pytest.raises(UnknownTopic):
            await seek
        cursor = broker.cursors.get(KEY)
        assert cursor is not None
        assert cursor.mark_delete == 3
        await broker.stop()

    run(scenario())


def test_a_start_removes_what_a_deletion_has_left() -> None:
    """The process had died when the deletion was durable, and nothing of it was carried out."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        await settle()
        assert await commit(broker, 1) is GroupError.NONE
        world.metadata.stop_after(1)
        await broker.delete_topic(topic)
        world.metadata.stop_after(1 << 30)
        broker = await world.crash()
        await settle()
        roots = ("/cursors/", "/deleted-topics/", "/deleted-ledgers/", "/managed-ledgers/")
        assert [await world.metadata.scan(root) for root in roots] == [[], [], [], []]
        assert world.store.ledgers == {}
        await broker.stop()

    run(scenario())
