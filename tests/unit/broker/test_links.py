"""Linked topics in the broker: declared, followed, cut loose; restarts, deletions, groups."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from magnetar.base.errors import MetadataError, StorageError
from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.errors import OffsetsDiffer, TopicExists, TopicLinked, UnknownTopic
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.jobs.errors import LinkNotFound
from magnetar.broker.jobs.links import ROOT, Links
from magnetar.broker.jobs.model import Link
from magnetar.broker.schemas.model import Schema, SchemaType
from magnetar.broker.security.model import ANONYMOUS, Caller, Origin
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.usecases.links import Declared, GroupPosition
from magnetar.testing.metadata import MemoryMetadataStore

from .linked_batches import copied
from .test_producer_state import settle
from .test_topics import NAME, World, run

CALLER = Caller(ANONYMOUS, "", Origin("", "", ""))
SOURCE = "kafka://elsewhere:9092"


async def declare(broker: Broker, partitions: int = 1, origin: str = "c/1", **configs: str) -> Declared:
    settings = {name.replace("_", "."): text for name, text in configs.items()}
    return await broker.cases.links.declare(CALLER, "t", SOURCE, origin, partitions, settings)


async def append(broker: Broker, *batches: memoryview, after: int = 0, begin: int = 0, end: int = 0) -> int:
    copy = broker.cases.links.copy(CALLER, "t", 0)
    return await copy.append(memoryview(b"".join(batches)), after=after, begin=begin, end=end)


async def positions(broker: Broker, *wanted: tuple[str, int, int]) -> Sequence[str | None]:
    rows = [GroupPosition(*one, "noted") for one in wanted]
    return await broker.cases.links.set_positions(CALLER, "t", rows)


def committed(broker: Broker, group: str, index: int = 0) -> int | None:
    _, (cursor,) = broker.groups.offsets.fetch(group, [(NAME.full, index)])
    return None if cursor is None else cursor.committed_offset


def test_a_linked_topic_takes_records_only_from_its_link_until_it_is_cut_loose() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        declared = await declare(broker, 2)
        assert [(one.log_start, one.end, one.is_new) for one in declared.partitions] == [(0, 0, True)] * 2
        assert await append(broker, copied(3, 2), end=9) == 9
        for _ in range(2):
            outcomes: list[Exception | None] = []
            for index in range(2):
                with pytest.raises(TopicLinked):
                    world.produce(broker.topics.get(NAME).partition(index), outcomes)
            declared = await declare(broker, 2)
            assert [(one.log_start, one.end, one.is_new) for one in declared.partitions] == [
                (0, 9, False),
                (0, 0, True),
            ]
            broker = await world.crash()
        await broker.cases.links.cut(CALLER, "t")
        for _ in range(2):
            partition = broker.topics.get(NAME).partition(0)
            before = partition.log.next_offset
            world.produce(partition, outcomes)
            await settle()
            assert outcomes.pop() is None
            assert partition.log.high_watermark == before + 1
            with pytest.raises(LinkNotFound):
                await append(broker, copied(100))
            with pytest.raises(TopicExists):
                await declare(broker)
            with pytest.raises(LinkNotFound):
                await broker.cases.links.cut(CALLER, "t")
            broker = await world.crash()
        assert await world.metadata.scan(ROOT) == []
        await broker.stop()

    run(scenario())


def test_a_copy_begins_where_its_source_begins() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        assert await append(broker, copied(1005), begin=1000) == 1006
        assert await append(broker, begin=5000) == 1006
        broker = await world.crash()
        (partition,) = (await declare(broker)).partitions
        assert (partition.log_start, partition.end) == (1000, 1006)
        await broker.stop()

    run(scenario())


def test_a_link_follows_partitions_and_settings_and_leaves_out_what_cannot_be() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await declare(broker, retention_ms="1000")
        topic = broker.topics.get(NAME)
        assert topic.overrides == {"retention.ms": "1000"}
        found = await declare(broker, 3, cleanup_policy="compact", segment_bytes="100", no_such="1")
        assert (topic.partition_count, len(found.partitions)) == (3, 3)
        assert topic.overrides == {"cleanup.policy": "compact"}
        assert found.left_out.keys() == {"segment.bytes", "no.such"}
        assert all(topic.partition(index).is_linked for index in range(3))
        await broker.stop()

    run(scenario())


def test_a_topic_that_is_no_copy_of_that_one_is_refused() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker, origin="c/1")
        with pytest.raises(TopicExists):
            await declare(broker, origin="c/2")
        await broker.delete_topic(broker.topics.get(NAME))
        await world.create()
        with pytest.raises(TopicExists):
            await declare(broker)
        outcomes: list[Exception | None] = []
        world.produce(broker.topics.get(NAME).partition(0), outcomes)
        await settle()
        assert outcomes == [None]
        await broker.stop()

    run(scenario())


def test_a_link_goes_with_its_topic() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        copy = broker.cases.links.copy(CALLER, "t", 0)
        await broker.delete_topic(broker.topics.get(NAME))
        assert await world.metadata.scan(ROOT) == []
        assert broker.cases.links.all(CALLER) == []
        assert await broker.schemas.register(NAME, Schema(SchemaType.STRING)) == 0
        with pytest.raises(UnknownTopic):
            await copy.append(copied(0), after=0, begin=0, end=0)
        await broker.stop()

    run(scenario())


def test_a_name_is_linked_by_the_newest_link_of_its_topics() -> None:
    """An answer that was lost leaves the link of a topic that is not there, until the next start."""

    async def scenario() -> None:
        broker = await World().start()
        links = Links(MemoryMetadataStore(), broker.topics)
        older, newer = (broker.topics.plan(NewTopic(NAME, 1)) for _ in range(2))
        for topic in (older, newer):
            await links.add(Link(topic.topic_id.hex(), NAME.full, SOURCE, "c/1", 0))
        assert links.is_linked(replace(NAME, persistent=False))
        assert not links.is_linked(TopicName.parse("persistent://public/default/other"))
        links.forget(older)
        assert links.is_linked(NAME)
        links.forget(newer)
        assert not links.is_linked(NAME)
        await broker.stop()

    run(scenario())


def test_a_topic_that_another_client_creates_first_is_not_linked() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        world.metadata.hold()
        declaring = asyncio.ensure_future(declare(broker))
        await settle()
        creating = asyncio.ensure_future(broker.topics.ensure(NAME))
        await settle()
        world.metadata.release()
        with pytest.raises(TopicExists):
            await declaring
        outcomes: list[Exception | None] = []
        world.produce((await creating).partition(0), outcomes)
        await settle()
        assert outcomes == [None]
        assert await world.metadata.scan(ROOT) == []
        await broker.stop()

    run(scenario())


def test_a_link_whose_topic_was_never_created_is_gone_after_a_crash() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await world.metadata.put(
            ROOT + "0" * 32,
            b'{"v": 1, "topic": "persistent://public/default/x", "source": "", "origin": "", "created_ms": 0}',
        )
        broker = await world.crash()
        assert await world.metadata.scan(ROOT) == []
        assert broker.cases.links.all(CALLER) == []
        await broker.stop()

    run(scenario())


def test_a_cut_that_is_not_stored_changes_nothing() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        world.metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await broker.cases.links.cut(CALLER, "t")
        with pytest.raises(TopicLinked):
            world.produce(broker.topics.get(NAME).partition(0), [])
        await broker.stop()

    run(scenario())


def test_what_is_not_durable_is_an_error() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        assert await append(broker, copied(0)) == 1
        world.store.automatic = False
        sending = asyncio.ensure_future(append(broker, copied(1), copied(2)))
        await settle()
        assert not sending.done()
        world.store.fail()
        await settle()
        world.store.automatic = True
        await world.flush()
        with pytest.raises(StorageError):
            await sending
        (partition,) = (await declare(broker)).partitions
        assert partition.end == 1
        assert await append(broker, copied(1), copied(2)) == 3
        await broker.stop()

    run(scenario())


def test_a_write_that_fails_between_batches_does_not_become_a_gap() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        assert await append(broker, copied(0)) == 1
        world.store.automatic = False
        batches = [copied(offset) for offset in range(1, 1000)]
        sending = asyncio.ensure_future(append(broker, *batches, after=1))
        for _ in range(3):
            await asyncio.sleep(0)
        assert 1 < broker.topics.get(NAME).partition(0).log.next_offset < 1000, "it is in the middle"
        world.store.fail()
        world.store.automatic = True
        await world.flush()
        with pytest.raises(StorageError):
            await sending
        assert broker.topics.get(NAME).partition(0).log.next_offset == 1
        assert await append(broker, *batches, after=1) == 1000
        await broker.stop()

    run(scenario())


def test_a_log_that_ends_before_what_its_link_knows_is_left_as_it_is() -> None:
    """It is another one, or an older copy of its folder was put back: the records between must not become a gap."""

    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        await append(broker, copied(0, 5))
        with pytest.raises(OffsetsDiffer):
            await append(broker, copied(8), after=7)
        with pytest.raises(OffsetsDiffer):
            await append(broker, after=7, end=8)
        assert broker.topics.get(NAME).partition(0).log.next_offset == 5
        assert await append(broker, copied(8), after=5) == 9
        await broker.stop()

    run(scenario())


def test_requests_at_once_append_one_after_the_other() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        batches = [copied(10 + 2 * number) for number in range(200)]
        ends = await asyncio.gather(*(append(broker, *batches, begin=10) for _ in range(3)))
        assert ends == [409] * 3
        log = broker.topics.get(NAME).partition(0).log
        assert (log.log_start, log.next_offset) == (10, 409)
        await broker.stop()

    run(scenario())


def test_nothing_is_appended_while_a_log_is_given_its_beginning() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        world.metadata.hold()
        first = asyncio.ensure_future(append(broker, copied(10), begin=10))
        await settle()
        second = asyncio.ensure_future(append(broker, copied(3), copied(10, 2)))
        await settle()
        world.metadata.release()
        assert await first == 11
        with pytest.raises(OffsetsDiffer):
            await second
        log = broker.topics.get(NAME).partition(0).log
        assert (log.log_start, log.next_offset) == (10, 11)
        await broker.stop()

    run(scenario())


def test_a_topic_that_is_not_linked_gives_no_handle() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await world.create()
        with pytest.raises(LinkNotFound):
            broker.cases.links.copy(CALLER, "t", 0)
        await broker.stop()

    run(scenario())


def test_groups_get_the_positions_of_the_source() -> None:
    """A consumer that moves over reads no record twice and misses none."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        await append(broker, copied(100, 50), begin=100)
        assert await positions(broker, ("inside", 0, 120), ("before", 0, 3), ("behind", 0, 900)) == [None] * 3
        assert [committed(broker, one) for one in ("inside", "before", "behind")] == [120, 100, 150]
        await append(broker, copied(150, 800))
        assert await positions(broker, ("inside", 0, 110), ("behind", 0, 900), ("other", 1, 5)) == [
            None,
            None,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        assert committed(broker, "inside") == 120, "no group is moved back"
        assert committed(broker, "behind") == 900
        broker = await world.crash()
        assert committed(broker, "behind") == 900
        await broker.stop()

    run(scenario())


def test_a_group_that_has_moved_over_keeps_its_own_position() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        await append(broker, copied(0, 10))
        await positions(broker, ("g", 0, 4))
        request = CommitRequest("g", [OffsetToCommit(NAME.full, 0, 8)])
        await broker.groups.offsets.commit(request)
        await positions(broker, ("g", 0, 6))
        assert committed(broker, "g") == 8
        await broker.stop()

    run(scenario())


def test_a_report_is_shown_and_not_stored() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        ((link, report),) = broker.cases.links.all(CALLER)
        assert (link.topic, link.source, report) == (NAME.full, SOURCE, None)
        broker.cases.links.report(CALLER, "t", 12, "no broker answers")
        ((_, report),) = broker.cases.links.all(CALLER)
        assert report is not None
        assert (report.lag, report.error, report.at_ms) == (12, "no broker answers", world.clock.now_ms())
        broker = await world.crash()
        assert [one for _, one in broker.cases.links.all(CALLER)] == [None]
        await broker.stop()

    run(scenario())
