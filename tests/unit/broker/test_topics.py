"""Topics made, deleted and grown, over stores whose disk the test plays."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from magnetar.base.errors import MetadataError, StorageError
from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import (
    InvalidPartitions,
    TopicExists,
    TopicTerminated,
    UnknownTopic,
    UnknownTopicId,
)
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.roots import SNAPSHOTS_ROOT, TOPICS_ROOT
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.metadata.store import CommitStep
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedgerStore
from magnetar.testing.metadata import MemoryMetadataStore

from .test_producer_state import batch, settle

NAME = TopicName("public", "default", "t", True)


class MortalMetadataStore(MemoryMetadataStore):
    """The process dies after so many writes: those after them never come back."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left = 1 << 30

    def stop_after(self, steps: int) -> None:
        self.steps_left = steps

    def take(self) -> bool:
        """Whether one more write is made before the end."""
        self.steps_left -= 1
        return self.steps_left >= 0

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        if not self.take():
            await asyncio.Event().wait()
        await super().commit(operations)


@dataclass
class World:
    """A broker, and the stores that outlive it."""

    store: MemoryLedgerStore = field(default_factory=MemoryLedgerStore)
    metadata: MortalMetadataStore = field(default_factory=MortalMetadataStore)
    clock: FakeClock = field(default_factory=FakeClock)

    async def start(self) -> Broker:
        self.broker = Broker(BrokerSettings(), self.store, self.metadata, self.clock, Nodes([Node(1)]))
        await self.broker.start()
        await settle()
        return self.broker

    async def crash(self) -> Broker:
        """The process dies with whatever it was doing, and is started again."""
        for job in self.broker.upkeep.jobs:
            job.cancel()
        doomed = asyncio.all_tasks() - {asyncio.current_task()}
        for task in doomed:
            task.cancel()
        if doomed:
            await asyncio.wait(doomed)
        self.store = self.store.crash()
        return await self.start()

    async def flush(self) -> None:
        """Let everything be written that waits."""
        await settle()
        while len(self.store):
            self.store.write()
            await settle()

    async def create(self, partition_count: int = 1) -> Any:
        await self.broker.topics.create([self.broker.topics.plan(NewTopic(NAME, partition_count))])
        return self.broker.topics.get(NAME)

    def produce(self, partition: Any, outcomes: list[Exception | None], producer_id: int = -1) -> None:
        epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
        now_ms = self.clock.now_ms()
        partition.append(batch(1, producer_id, epoch, sequence, now_ms), now_ms, outcomes.append)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_of_many_that_make_one_topic_one_makes_it_and_all_get_it() -> None:
    async def scenario() -> None:
        world = World()
        topics = (await world.start()).topics
        world.metadata.hold()
        waiting = [asyncio.ensure_future(topics.ensure(NAME)) for _ in range(5)]
        await settle()
        with pytest.raises(TopicExists):
            topics.plan(NewTopic(NAME))
        world.metadata.release()
        found = await asyncio.gather(*waiting)
        assert len({topic.topic_id for topic in found}) == 1
        await world.broker.stop()

    run(scenario())


def test_when_the_one_that_makes_a_topic_fails_the_next_one_tries() -> None:
    async def scenario() -> None:
        world = World()
        topics = (await world.start()).topics
        world.metadata.hold()
        world.metadata.fail_next = 1
        waiting = [asyncio.ensure_future(topics.ensure(NAME)) for _ in range(3)]
        await settle()
        world.metadata.release()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) is MetadataError for one in outcomes] == [True, False, False]
        assert topics.find(NAME) is not None
        await world.broker.stop()

    run(scenario())


def test_a_deleted_topic_answers_its_producers_and_wakes_its_readers() -> None:
    async def scenario() -> None:
        world = World(MemoryLedgerStore(automatic=False))
        broker = await world.start()
        topic = await world.create(3)
        outcomes: list[Exception | None] = []
        woken: list[int] = []
        for index in range(3):
            world.produce(topic.partition(index), outcomes)
            topic.partition(index).waiters.add(lambda _, index=index: woken.append(index))
        await settle()
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        # The disk does nothing yet, and no reader that waits on a partition waits for it.
        assert sorted(woken) == [0, 1, 2]
        with pytest.raises(UnknownTopic):
            broker.topics.get(NAME)
        with pytest.raises(UnknownTopicId):
            broker.topics.get_by_id(topic.topic_id)
        with pytest.raises(StorageError):
            world.produce(topic.partition(0), outcomes)
        assert len(outcomes) == 3
        while not deletion.done() or len(world.store):
            world.store.write()
            await settle()
        assert world.store.ledgers == {}
        for root in (TOPICS_ROOT, METADATA_ROOT, SNAPSHOTS_ROOT):
            assert await world.metadata.scan(root) == []
        world.store.automatic = True
        assert (await world.create()).topic_id != topic.topic_id
        await broker.stop()

    run(scenario())


def test_a_topic_whose_deletion_cannot_be_stored_is_still_there() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        await settle()
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await broker.delete_topic(topic)
        assert broker.topics.get(NAME) is topic
        world.produce(topic.partition(0), outcomes)
        await settle()
        assert outcomes == [None, None]
        await broker.delete_topic(topic)
        with pytest.raises(UnknownTopic):
            await broker.delete_topic(topic)
        await broker.stop()

    run(scenario())


def test_a_deletion_goes_on_after_a_crash_at_each_of_its_steps() -> None:
    """Killed after each write of the disk or the metadata store: the topic is whole, or gone with all it had."""

    async def scenario(steps: int) -> bool:
        world = World(MemoryLedgerStore(automatic=False))
        starting = asyncio.ensure_future(world.start())
        await world.flush()
        broker = await starting
        topic = await world.create(2)
        outcomes: list[Exception | None] = []
        for index in range(2):
            world.produce(topic.partition(index), outcomes, producer_id=7)
        await world.flush()
        await broker.snapshots.store(topic.open_partitions)
        world.metadata.stop_after(steps)
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        for _ in range(steps + 5):
            await settle()
            if len(world.store) and world.metadata.take():
                world.store.write(1)
        await settle()
        was_whole = await world.metadata.get(f"{TOPICS_ROOT}public/default/persistent/t") is not None
        is_over = world.metadata.steps_left > 0
        assert deletion.done() or not is_over
        deletion.cancel()
        world.metadata.stop_after(1 << 30)
        world.store.automatic = True
        broker = await world.crash()
        await settle()
        assert (broker.topics.find(NAME) is not None) is was_whole
        assert broker.topics.problem is None
        if was_whole:
            assert [broker.topics.get(NAME).partition(index).log.high_watermark for index in range(2)] == [
                1,
                1,
            ]
        else:
            assert world.store.ledgers == {}
            for root in (METADATA_ROOT, SNAPSHOTS_ROOT, "/deleted-topics/", "/deleted-ledgers/"):
                assert await world.metadata.scan(root) == []
        await broker.stop()
        return is_over

    steps = 0
    while not asyncio.run(scenario(steps)):
        steps += 1
    assert steps > 5


def test_what_no_deletion_gave_up_is_kept_and_reported() -> None:
    """An older or foreign metadata file names none of these ledgers: they used to be deleted without a word."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create(2)
        outcomes: list[Exception | None] = []
        for index in range(2):
            world.produce(topic.partition(index), outcomes, producer_id=7)
        await settle()
        before = sorted(world.store.ledgers)
        empty = await world.store.create()  # made, and not recorded before the crash
        await world.metadata.delete(f"{TOPICS_ROOT}public/default/persistent/t")
        await world.metadata.delete(METADATA_ROOT + topic.log_name(1))
        broker = await world.crash()
        await settle()
        assert sorted(world.store.ledgers) == before
        assert empty.ledger_id not in world.store.ledgers
        problem = broker.topics.problem
        assert problem is not None
        assert problem.startswith("1 ledgers (")
        assert f"belong to no topic: {before[1]}; 1 logs belong to no topic: {topic.log_name(0)}" in problem
        await broker.stop()

    run(scenario())


def test_a_ledger_that_a_log_names_is_kept_whatever_was_given_up() -> None:
    async def scenario() -> None:
        world = World()
        await world.start()
        topic = await world.create()
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        await settle()
        (ledger_id,) = world.store.ledgers
        await world.metadata.put(f"/deleted-ledgers/{ledger_id:016x}", b"")
        broker = await world.crash()
        await settle()
        assert list(world.store.ledgers) == [ledger_id]
        assert broker.topics.get(NAME).partition(0).log.high_watermark == 1
        await broker.stop()

    run(scenario())


def test_a_partition_whose_ledgers_are_missing_is_refused_while_others_serve() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create(2)
        outcomes: list[Exception | None] = []
        for index in range(2):
            world.produce(topic.partition(index), outcomes, producer_id=7)
        await settle()
        await broker.snapshots.store(topic.open_partitions)
        kept = await world.metadata.scan("/")
        del world.store.ledgers[topic.partition(0).log.stored_ids[0]]
        broker = await world.crash()
        topic = broker.topics.get(NAME)
        with pytest.raises(StorageError, match="not in the data folder"):
            topic.partition(0)
        assert topic.partition(1).log.high_watermark == 1
        assert "-partition-0@" in (broker.topics.problem or "")
        await broker.retention.run_once()
        assert await world.metadata.scan("/") == kept
        await broker.delete_topic(topic)
        await settle()
        assert world.store.ledgers == {}
        assert await world.metadata.scan(METADATA_ROOT) == []
        await broker.stop()

    run(scenario())


def test_a_start_on_a_full_disk_puts_the_clean_up_off() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        await settle()
        world.store.full = True
        await broker.delete_topic(topic)
        await settle()
        assert len(world.store.ledgers) == 1
        for job in broker.upkeep.jobs:
            job.cancel()
        world.store = world.store.crash()
        world.store.full = True
        broker = await world.start()
        assert len(world.store.ledgers) == 1
        world.store.full = False
        world.clock.advance(60)
        await settle()
        assert world.store.ledgers == {}
        assert await world.metadata.scan("/deleted-topics/") == []
        await broker.stop()

    run(scenario())


def test_logs_producers_and_settings_are_there_after_a_crash() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create(2)
        await broker.topics.set_config(topic, {"segment.bytes": "1048576", "retention.ms": "1000"})
        assert topic.partition(1).log.limits.size_bytes_max == 1048576
        await broker.topics.add_partitions(topic, broker.topics.plan_partitions(topic, 3))
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(2), outcomes, producer_id=7)
        await settle()
        broker = await world.crash()
        again = broker.topics.get(NAME)
        assert (again.topic_id, again.partition_count) == (topic.topic_id, 3)
        assert again.config.retention_ms == 1000
        assert again.partition(1).log.limits.size_bytes_max == 1048576
        assert again.partition(2).log.high_watermark == 1
        world.produce(again.partition(2), outcomes, producer_id=7)  # the same batch again
        await settle()
        assert outcomes == [None, None]
        assert again.partition(2).log.high_watermark == 1
        world.clock.advance(2)
        await broker.retention.run_once()
        await settle()
        assert again.partition(2).log.log_start == 1
        await broker.stop()

    run(scenario())


def test_whether_a_topic_is_partitioned_is_remembered_and_growing_makes_it_so() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        other = TopicName.parse("persistent://public/default/other")
        plain = broker.topics.plan(NewTopic(NAME, 1, is_partitioned=False))
        await broker.topics.create([plain, broker.topics.plan(NewTopic(other, 1))])
        with pytest.raises(InvalidPartitions):
            broker.topics.plan(
                NewTopic(TopicName.parse("persistent://public/default/x"), 2, is_partitioned=False)
            )
        broker = await world.crash()
        topic = broker.topics.get(NAME)
        assert not topic.is_partitioned
        assert broker.topics.get(other).is_partitioned
        await broker.topics.add_partitions(topic, broker.topics.plan_partitions(topic, 2))
        assert topic.is_partitioned
        broker = await world.crash()
        assert broker.topics.get(NAME).is_partitioned

    run(scenario())


def test_a_topic_brings_its_namespace_along() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await broker.topics.ensure(TopicName.parse("persistent://acme/orders/t"))
        assert "acme/orders" in broker.namespaces
        assert "acme/orders" in (await world.crash()).namespaces

    run(scenario())


def test_a_terminated_topic_ends_with_what_was_appended_before_over_restarts_too() -> None:
    async def scenario() -> None:
        world = World(MemoryLedgerStore(automatic=False))
        broker = await world.start()
        topic = await world.create(2)
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        terminating = asyncio.ensure_future(broker.topics.terminate(topic))
        await settle()
        for index in (0, 1):  # the second was never used before
            with pytest.raises(TopicTerminated):
                world.produce(topic.partition(index), outcomes)
        assert not terminating.done(), "what was appended before is not durable"
        while not terminating.done():
            world.store.write()
            await settle()
        assert outcomes == [None]
        await broker.topics.terminate(topic)
        topic = (await world.crash()).topics.get(NAME)
        assert topic.is_terminated
        assert topic.partition(0).log.high_watermark == 1
        with pytest.raises(TopicTerminated):
            world.produce(topic.partition(0), outcomes)
        async with world.broker.topics.changing(topic):
            await world.broker.topics.add_partitions(topic, world.broker.topics.plan_partitions(topic, 3))
        assert (await world.crash()).topics.get(NAME).is_terminated, "also when something else was changed"
        await world.broker.stop()

    run(scenario())


def test_a_topic_that_cannot_be_terminated_now_goes_on() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await broker.topics.terminate(topic)
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        await settle()
        assert outcomes == [None]
        await broker.stop()

    run(scenario())


def test_a_deleted_topic_takes_every_subscription_s_cursors_with_it() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create(2)
        keys = [CursorKey(name, NAME.full, index) for name in ("a", "b") for index in (0, 1)]
        elsewhere = CursorKey("a", "persistent://public/default/other", 0)
        await broker.topics.ensure(TopicName.parse(elsewhere.topic))
        await broker.cursors.commit({key: Cursor(mark_delete=0) for key in [*keys, elsewhere]})
        await broker.delete_topic(topic)
        await world.crash()
        assert [world.broker.cursors.get(key) for key in keys] == [None] * 4
        assert world.broker.cursors.get(elsewhere) is not None
        await world.broker.stop()

    run(scenario())


def test_logs_of_a_topic_begin_ledgers_at_different_times_if_its_settings_say_so() -> None:
    async def scenario() -> None:
        broker = await World().start()
        wanted = {"segment.ms": "1000", "segment.jitter.ms": "400"}
        await broker.topics.create([broker.topics.plan(NewTopic(NAME, 30, configs=wanted))])
        topic = broker.topics.get(NAME)
        logs = [topic.partition(index).log for index in range(30)]
        ages = {log.limits.age_ms_max for log in logs}
        assert len(ages) > 5
        assert all(600 < age <= 1000 for age in ages)
        for jitter, least in (("5000", 1), ("0", 1000)):
            async with broker.topics.changing(topic):
                await broker.topics.set_config(topic, {"segment.ms": "1000", "segment.jitter.ms": jitter})
            assert all(least <= log.limits.age_ms_max <= 1000 for log in logs)
        await broker.stop()

    run(scenario())
