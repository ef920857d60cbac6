"""The broker's periodic work goes on after an unforeseen failure, for every topic."""

import asyncio
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.roots import SNAPSHOTS_ROOT
from magnetar.ledger.managed_ledger import ManagedLedger

from .test_producer_state import settle
from .test_topics import NAME, World

OTHER = TopicName("public", "default", "u", True)


async def two_topics(world: World) -> tuple[Any, Any]:
    topics = world.broker.topics
    await topics.create(
        [topics.plan(NewTopic(name, 1, configs={"retention.ms": "1000"})) for name in (NAME, OTHER)]
    )
    return topics.get(NAME), topics.get(OTHER)


async def pass_time(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.clock.advance(1)
        await world.broker.upkeep.idle()


def test_retention_of_all_others_goes_on_when_one_log_fails_unforeseen_and_its_own_when_that_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        one, other = await two_topics(world)
        for topic in (one, other):
            world.produce(topic.partition(0), [])
        await settle()
        trim = ManagedLedger.trim

        async def broken(log: ManagedLedger, *limits: Any, **when: Any) -> int:
            if log is one.partition(0).log:
                raise MemoryError
            return await trim(log, *limits, **when)

        monkeypatch.setattr(ManagedLedger, "trim", broken)
        await pass_time(world, 301)
        assert other.partition(0).log.log_start == 1
        assert one.partition(0).log.log_start == 0
        assert "retention has failed once" in (broker.upkeep.problem or "")
        monkeypatch.setattr(ManagedLedger, "trim", trim)
        await pass_time(world, 301)
        assert one.partition(0).log.log_start == 1
        assert broker.upkeep.problem is None
        await broker.stop()

    asyncio.run(scenario())


def test_a_snapshot_that_cannot_be_stored_keeps_no_other_from_being_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One commit for all partitions once meant that one value too large left every partition without a snapshot."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await pass_time(world, 10)
        for topic in await two_topics(world):
            world.produce(topic.partition(0), [], producer_id=7)
        await settle()
        world.metadata.fail_next = 1
        await pass_time(world, 10)
        assert len(await world.metadata.scan(SNAPSHOTS_ROOT)) == 1
        assert "producer snapshots of 1 partitions wait" in caplog.text
        await pass_time(world, 10)
        assert len(await world.metadata.scan(SNAPSHOTS_ROOT)) == 2, "it stayed due"
        await broker.stop()

    asyncio.run(scenario())


def test_a_busy_partition_makes_no_other_be_stored_before_its_time() -> None:
    """A client that invents producers makes a snapshot of a megabyte; a busy neighbour had it written each second."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        busy, quiet = [topic.partition(0) for topic in await two_topics(world)]
        await pass_time(world, 10)
        for partition in (busy, quiet):
            world.produce(partition, [], producer_id=7)
        await settle()
        busy.bytes_since_snapshot += 256 << 20
        await pass_time(world, 2)
        assert [path for path, _ in await world.metadata.scan(SNAPSHOTS_ROOT)] == [
            SNAPSHOTS_ROOT + busy.log.name
        ]
        assert (busy.bytes_since_snapshot, quiet.bytes_since_snapshot > 0) == (0, True)
        await pass_time(world, 8)
        assert len(await world.metadata.scan(SNAPSHOTS_ROOT)) == 2
        await broker.stop()

    asyncio.run(scenario())


def test_aborted_transactions_of_records_that_retention_has_dropped_take_no_memory() -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        topic, _ = await two_topics(world)
        partition = topic.partition(0)
        world.produce(partition, [])
        await settle()
        partition.transactions.began(7, 0)
        partition.transactions.ended(7, 0, committed=False)
        await pass_time(world, 30)
        (head, block) = [path for path, _ in await world.metadata.scan(SNAPSHOTS_ROOT)]
        assert block.startswith(f"{head}/aborted-")
        await pass_time(world, 300)
        assert partition.transactions.aborted_count == 0
        assert [path for path, _ in await world.metadata.scan(SNAPSHOTS_ROOT)] == [head]
        await world.broker.stop()

    asyncio.run(scenario())


def test_all_values_of_a_snapshot_go_with_their_topic() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic, _ = await two_topics(world)
        partition = topic.partition(0)
        world.produce(partition, [], producer_id=7)
        await settle()
        partition.transactions.began(7, 0)
        partition.transactions.ended(7, 0, committed=False)
        await pass_time(world, 20)
        assert len(await world.metadata.scan(SNAPSHOTS_ROOT)) == 2
        await broker.delete_topic(topic)
        await settle()
        assert await world.metadata.scan(SNAPSHOTS_ROOT) == []
        await broker.stop()

    asyncio.run(scenario())
