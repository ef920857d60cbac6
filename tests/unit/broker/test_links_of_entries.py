"""Linked topics of a cluster of Pulsar's in the broker: entries and their positions, schemas, subscriptions."""

import asyncio
from collections.abc import Sequence

import pytest

from magnetar.base.errors import BrokerError, StorageError
from magnetar.broker.broker import Broker
from magnetar.broker.errors import CorruptMessage, InvalidPartitions, InvalidRecord, OffsetsDiffer
from magnetar.broker.jobs.errors import LinkNotFound
from magnetar.broker.log.model import Position
from magnetar.broker.schemas.model import IncompatibleSchema, InvalidSchema, Schema, SchemaType
from magnetar.broker.security.model import ANONYMOUS, Caller, Origin
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed
from magnetar.broker.usecases.linked_copies import SubscriptionPosition
from magnetar.broker.usecases.links import Declared
from magnetar.ledger.entry import EntryKind
from magnetar.wire.pulsar.linked import framed

from .linked_entries import NOW_MS, entry, sent
from .test_producer_state import settle
from .test_topics import NAME, World, run

CALLER = Caller(ANONYMOUS, "", Origin("", "", ""))
SOURCE = "pulsar://elsewhere:6650/public/default/t"


async def declare(broker: Broker, partitions: int = 1, *, is_partitioned: bool = True) -> Declared:
    return await broker.cases.links.declare(
        CALLER, NAME.full, SOURCE, SOURCE, partitions, None, is_partitioned=is_partitioned
    )


async def append(broker: Broker, data: bytes, after: Position | None = None) -> Position | None:
    copy = broker.cases.links.copy(CALLER, NAME.full, 0)
    return await copy.append_entries(memoryview(data), after=after)


async def subscribed(
    broker: Broker,
    name: str,
    mark_delete: Position,
    *acknowledged: tuple[Position, Position],
) -> Sequence[str | None]:
    row = SubscriptionPosition(name, 0, mark_delete, acknowledged, {"owner": "me"})
    return await broker.cases.links.set_subscriptions(CALLER, NAME.full, [row])


def unacknowledged(broker: Broker, name: str) -> list[int]:
    partition = broker.topics.get(NAME).partition(0)
    cursor = broker.subscription_admin.cursor(partition, name)
    end = partition.log.high_watermark
    return [offset for offset in range(end) if not cursor.is_acknowledged(offset)]


async def stored(broker: Broker) -> list[bytes]:
    """The entries of the copy, byte for byte."""
    log = broker.topics.get(NAME).partition(0).log
    offset, found = log.log_start, []
    while offset < log.high_watermark:
        for one in await log.read(offset, 1 << 20):
            assert one.kind is EntryKind.PULSAR
            found.append(bytes(one.payload))
            offset = one.last_offset + 1
    return found


def test_entries_keep_their_bytes_and_the_log_knows_where_they_come_from() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        declared = await declare(broker)
        assert [(one.position, one.is_new) for one in declared.partitions] == [(None, True)]
        assert await append(broker, sent((5, 0), (5, 3)) + framed(7, 0, entry(0, 4))) == (7, 0)
        for _ in range(2):
            (partition,) = (await declare(broker)).partitions
            assert (partition.position, partition.end, partition.is_new) == ((7, 0), 6, False)
            assert await stored(broker) == [entry(0), entry(3), entry(0, 4)]
            broker = await world.crash()
        await broker.stop()

    run(scenario())


def test_what_is_sent_again_is_dropped() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        await append(broker, sent((5, 0), (5, 1)))
        broker = await world.crash()
        assert await append(broker, sent((5, 0), (5, 1), (5, 2)), Position(5, 1)) == (5, 2)
        assert await append(broker, sent((5, 1)), Position(5, 0)) == (5, 2)
        assert await append(broker, b"", Position(5, 2)) == (5, 2)
        assert await stored(broker) == [entry(0), entry(1), entry(2)]
        await broker.stop()

    run(scenario())


def test_a_copy_that_ends_before_what_its_link_knows_is_left_as_it_is() -> None:
    """Otherwise entries that the link believes to be there would be missing."""

    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        for _ in range(2):
            with pytest.raises(OffsetsDiffer):
                await append(broker, sent((5, 7)), Position(5, 6))
            assert await append(broker, sent((5, 0))) == (5, 0)
        assert await stored(broker) == [entry(0)]
        await broker.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"no entry", InvalidRecord),
        (sent((5, 1))[:-1], InvalidRecord),
        (sent((5, 1)) + b"x", InvalidRecord),
        (sent((5, 1), (5, 1)), InvalidRecord),
        (sent((5, 1), (4, 9)), InvalidRecord),
        (framed(-1, 1, entry(1)), InvalidRecord),
        (framed(5, -1, entry(1)), InvalidRecord),
        (framed(5, 1, entry(1)[6:]), InvalidRecord),  # without its checksum
        (framed(5, 1, entry(1)[:-1] + b"?"), CorruptMessage),
        (framed(5, 1, b"\x0e\x01" + bytes(8)), CorruptMessage),
        (framed(5, 1, entry(1, marker_type=20)), InvalidRecord),
        (framed(5, 1, entry(1, txnid_most_bits=0, txnid_least_bits=3)), InvalidRecord),
    ],
)
def test_what_is_no_entry_of_a_link_is_refused(data: bytes, error: type[BrokerError]) -> None:
    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        with pytest.raises(error):
            await append(broker, data)
        await settle()
        assert all(one == entry(1) for one in await stored(broker))
        await broker.stop()

    run(scenario())


def test_an_append_that_fails_is_an_error_and_leaves_no_gap() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        await append(broker, sent((5, 0)))
        log = broker.topics.get(NAME).partition(0).log
        many = sent(*((5, number) for number in range(1, 1000)))
        for turns in (3, 400):  # in the middle, and when all waits to be durable
            world.store.automatic = False
            sending = asyncio.ensure_future(append(broker, many, Position(5, 0)))
            for _ in range(turns):
                await asyncio.sleep(0)
            assert 1 < log.next_offset <= 1000
            assert (log.next_offset == 1000) is (turns == 400)
            assert not sending.done()
            world.store.fail()
            world.store.automatic = True
            await world.flush()
            with pytest.raises(StorageError):
                await sending
            assert log.next_offset == log.high_watermark == 1
        assert await append(broker, many, Position(5, 0)) == (5, 999)
        assert await stored(broker) == [entry(number) for number in range(1000)]
        await broker.stop()

    run(scenario())


def test_retention_leaves_the_last_entry_of_a_copy() -> None:
    """It says where the copy ends: without it the whole source would come again."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        await append(broker, sent((5, 0), (5, 1)))
        topic = broker.topics.get(NAME)
        for _ in range(3):
            world.clock.advance(400 * 24 * 3600)
            await broker.retention.retain(topic, topic.partition(0))
            await settle()
        (partition,) = (await declare(broker)).partitions
        assert partition.position == (5, 1)
        await broker.cases.links.cut(CALLER, NAME.full)
        await broker.retention.retain(topic, topic.partition(0))
        assert topic.partition(0).log.log_start == 2
        await broker.stop()

    run(scenario())


def test_a_copy_whose_end_was_deleted_cannot_go_on() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        await append(broker, sent((5, 0), (5, 1)))
        log = broker.topics.get(NAME).partition(0).log
        await log.trim(log_start=2, drops_open=True)
        for attempt in (declare(broker), append(broker, sent((5, 2)), Position(5, 1))):
            with pytest.raises(OffsetsDiffer, match="has lost its last message"):
                await attempt
        await broker.stop()

    run(scenario())


def test_subscriptions_get_what_they_have_acknowledged_in_the_source() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        await declare(broker)
        assert await subscribed(broker, "s", Position(5, 3)) == [None]
        assert unacknowledged(broker, "s") == []
        # Entries 5:0, 5:2, ... 5:18 and then 9:0 ... 9:9, each of two messages.
        await append(broker, sent(*((5, 2 * number) for number in range(10)), count=2))
        await append(broker, sent(*((9, number) for number in range(10)), count=2), Position(5, 18))
        assert unacknowledged(broker, "s") == list(range(40))
        holes = ((Position(5, 4), Position(5, 7)), (Position(5, 17), Position(9, 1)))
        assert await subscribed(broker, "s", Position(5, 3), *holes) == [None]
        left = [offset for offset in range(4, 40) if not (6 <= offset < 8 or 18 <= offset < 24)]
        for _ in range(2):
            assert unacknowledged(broker, "s") == left
            broker = await world.crash()
        # Not back; and what the copy does not have yet, it does not acknowledge.
        assert await subscribed(broker, "s", Position(5, -1), (Position(9, 8), Position(12, 4))) == [None]
        assert unacknowledged(broker, "s") == [offset for offset in left if offset < 38]
        await append(broker, sent((9, 10)), Position(9, 9))
        assert unacknowledged(broker, "s") == [offset for offset in left if offset < 38] + [40]
        assert await subscribed(broker, "s", Position(30, 0)) == [None]
        assert unacknowledged(broker, "s") == []
        await broker.stop()

    run(scenario())


def test_a_copy_makes_no_more_subscriptions_than_its_topic_may_have() -> None:
    async def scenario() -> None:
        broker = await World().start()
        await declare(broker)
        await broker.namespaces.change(
            "public/default", lambda found: {**found, "max_subscriptions_per_topic": 1}
        )
        await append(broker, sent((5, 0)))
        assert await subscribed(broker, "s", Position(5, -1)) == [None]
        assert await subscribed(broker, "other", Position(5, 0)) == [SubscriptionNotAllowed.code]
        assert await subscribed(broker, "s", Position(5, 0)) == [None], "it is there already"
        assert unacknowledged(broker, "s") == []
        await broker.stop()

    run(scenario())


def test_schemas_have_the_versions_of_the_source() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        links = broker.cases.links
        first = Schema(SchemaType.STRING)
        other = Schema(SchemaType.AVRO, b'{"type": "int"}')
        assert (await declare(broker)).schema_count == 0
        assert await links.add_schemas(CALLER, NAME.full, 0, [first, None, other]) == 3
        assert await links.add_schemas(CALLER, NAME.full, 1, [None, other, first]) == 4
        with pytest.raises(IncompatibleSchema):
            await links.add_schemas(CALLER, NAME.full, 5, [first])
        with pytest.raises(InvalidSchema):
            await links.add_schemas(CALLER, NAME.full, 4, [Schema(SchemaType.AVRO, bytes(1 << 20))])
        broker = await world.crash()
        assert (await declare(broker)).schema_count == 4
        found = [one.schema for one in broker.schemas.history(NAME)]
        assert found == [first, None, other, first]
        await broker.cases.links.cut(CALLER, NAME.full)
        with pytest.raises(LinkNotFound):
            await broker.cases.links.add_schemas(CALLER, NAME.full, 4, [other])
        await broker.stop()

    run(scenario())


def test_a_topic_without_partitions_stays_one() -> None:
    async def scenario() -> None:
        broker = await World().start()
        with pytest.raises(InvalidPartitions):
            await declare(broker, 2, is_partitioned=False)
        await declare(broker, is_partitioned=False)
        topic = broker.topics.get(NAME)
        assert not topic.is_partitioned
        await append(broker, sent((5, 0)))
        (found,) = await topic.partition(0).log.read(0, 1 << 20)
        assert found.max_timestamp_ms == NOW_MS
        await broker.stop()

    run(scenario())
