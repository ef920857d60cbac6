"""A topic is deleted in one step, and one that is made again never meets what its predecessor had."""

import asyncio
import gc
import json
from collections.abc import Sequence

import pytest

from magnetar.base.errors import MetadataError, MetadataLost
from magnetar.base.names import TopicName
from magnetar.broker.broker import Broker
from magnetar.broker.errors import TopicExists, UnknownTopic
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.log.partition import Partition
from magnetar.broker.schemas.model import Schema, SchemaNotFound, SchemaType
from magnetar.broker.schemas.registry import SCHEMAS_ROOT
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import Producer
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.metadata.store import CommitStep

from .test_producer_state import settle
from .test_topics import NAME, World, run

KEY = CursorKey("g", NAME.full, 0)
SCHEMA = Schema(SchemaType.STRING, b"", {}, "t")


async def commit(broker: Broker, offset: int, group: str = "g") -> GroupError:
    """A client that belongs to no group commits."""
    request = CommitRequest(group, [OffsetToCommit(NAME.full, 0, offset)])
    (error,) = await broker.groups.offsets.commit(request)
    return error


async def furnish(broker: Broker) -> None:
    """Give the topic everything that goes by its name."""
    assert await commit(broker, 15) is GroupError.NONE
    partition = broker.topics.get(NAME).partition(0)
    await broker.subscriptions.create(partition, "s", 1)
    await broker.schemas.register(NAME, SCHEMA)
    await broker.namespaces.change_topic(NAME, lambda _: {"max_producers_per_topic": 5})


def has_nothing(broker: Broker) -> None:
    """The topic that has the name now begins from nothing."""
    assert broker.cursors.get(KEY) is None
    assert broker.cursors.get(KEY._replace(subscription="s")) is None
    assert broker.cursors.subscriptions_of(NAME.full) == []
    assert broker.cursors.holders(NAME.full, 0) == []
    with pytest.raises(SchemaNotFound):
        broker.schemas.get(NAME)
    assert broker.namespaces.policies_of(NAME).producers_max == 0
    assert broker.topics.get(NAME).partition(0).log.high_watermark == 0


def test_the_name_is_reserved_until_the_deletion_is_durable_and_the_next_topic_keeps_what_it_gets() -> None:
    """A client made the topic again 13 ms into its deletion and had a commit acknowledged, which was erased then."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        old = await world.create()
        await furnish(broker)
        world.metadata.hold()
        deletion = asyncio.ensure_future(broker.delete_topic(old))
        await settle()
        assert broker.topics.find(NAME) is None
        refused = asyncio.ensure_future(commit(broker, 99))
        again = asyncio.ensure_future(broker.topics.ensure(NAME))
        await settle()
        assert not again.done()
        assert not deletion.done()
        world.metadata.release()
        topic = await again
        assert await refused is GroupError.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.topic_id != old.topic_id
        has_nothing(broker)
        assert await commit(broker, 3) is GroupError.NONE
        await deletion
        await settle()
        for _ in range(2):
            found = broker.cursors.get(KEY)
            assert found is not None
            assert found.mark_delete == 3
            assert broker.cursors.subscriptions_of(NAME.full) == ["g"]
            assert len(await world.metadata.scan("/cursors/")) == 1
            assert await world.metadata.scan("/deleted-topics/") == []
            broker = await world.crash()
        await broker.stop()

    run(scenario())


def test_a_commit_on_its_way_for_the_old_topic_does_not_land_on_the_new_one() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        world.metadata.hold()
        on_its_way = asyncio.ensure_future(commit(broker, 15))
        await settle()
        behind_it = asyncio.ensure_future(commit(broker, 16, "h"))
        await settle()
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        world.metadata.release()
        assert await on_its_way is GroupError.NONE
        assert await behind_it is GroupError.NONE
        await deletion
        await world.create()
        has_nothing(broker)
        has_nothing(await world.crash())
        await world.broker.stop()

    run(scenario())


def test_a_kill_at_any_step_of_a_deletion_leaves_the_topic_whole_or_the_name_without_a_past() -> None:
    """The new topic's group stood at the old offset 15 without having read; a Pulsar subscription would skip."""

    async def scenario(steps: int) -> bool:
        world = World()
        broker = await world.start()
        topic = await world.create()
        outcomes: list[Exception | None] = []
        world.produce(topic.partition(0), outcomes)
        await settle()
        await furnish(broker)
        world.metadata.stop_after(steps)
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        is_over = world.metadata.steps_left > 0
        deletion.cancel()
        world.metadata.stop_after(1 << 30)
        broker = await world.crash()
        await settle()
        if broker.topics.find(NAME) is not None:
            found = broker.cursors.get(KEY)
            assert found is not None
            assert found.mark_delete == 15
            assert broker.schemas.get(NAME).schema == SCHEMA
            assert broker.namespaces.policies_of(NAME).producers_max == 5
            assert broker.topics.get(NAME).partition(0).log.high_watermark == 1
            assert not is_over
        else:
            await world.create()
            has_nothing(broker)
            assert await commit(broker, 3) is GroupError.NONE
            broker = await world.crash()
            await settle()
            assert [path for path, _ in await world.metadata.scan("/cursors/")] != []
            found = broker.cursors.get(KEY)
            assert found is not None
            assert found.mark_delete == 3
            assert world.store.ledgers == {}
        await broker.stop()
        return is_over

    steps = 0
    while not asyncio.run(scenario(steps)):
        steps += 1
    assert steps > 3


def test_a_deletion_that_cannot_be_stored_leaves_everything_as_it_was() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        await furnish(broker)
        before = await world.metadata.scan("/")
        world.metadata.hold()
        world.metadata.fail_next = 1
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        another = asyncio.ensure_future(broker.topics.create([broker.topics.plan(NewTopic(NAME))]))
        await settle()
        world.metadata.release()
        with pytest.raises(MetadataError):
            await deletion
        with pytest.raises(TopicExists):
            await another
        assert broker.topics.get(NAME) is topic
        assert broker.topics.get_by_id(topic.topic_id) is topic
        assert await world.metadata.scan("/") == before
        assert await commit(broker, 16) is GroupError.NONE
        await broker.stop()

    run(scenario())


def test_a_topic_that_may_be_deleted_or_not_is_not_used_until_the_next_start() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()

        async def lost(operations: Sequence[CommitStep]) -> None:
            raise MetadataLost("disk I/O error")

        world.metadata.commit = lost  # type: ignore[method-assign]
        with pytest.raises(MetadataLost):
            await broker.delete_topic(topic)
        assert broker.topics.find(NAME) is None
        again = asyncio.ensure_future(broker.topics.ensure(NAME))
        await settle()
        assert not again.done()
        again.cancel()

    run(scenario())


def test_a_request_that_is_given_up_does_not_leave_half_a_deletion() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        world.metadata.hold()
        deletion = asyncio.ensure_future(broker.delete_topic(topic))
        second = asyncio.ensure_future(broker.delete_topic(topic))
        await settle()
        deletion.cancel()
        await settle()
        world.metadata.release()
        await settle()
        with pytest.raises(UnknownTopic):
            await second
        assert broker.topics.find(NAME) is None
        await world.create()
        await broker.stop()

    run(scenario())


def test_a_session_that_still_holds_a_partition_of_the_old_topic_writes_nothing_for_the_new_one() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        old = (await world.create()).partition(0)
        await broker.delete_topic(old.topic)
        await world.create()
        admin, subscriptions = broker.subscription_admin, broker.subscriptions
        attempts = [
            subscriptions.create(old, "s", 1),
            subscriptions.set_properties(old, "g", {"a": "b"}),
            admin.hold("s", {old: 1}),
            subscriptions.delete(old, "g"),
            admin.skip_to(old, "g", 0),
        ]
        assert await commit(broker, 0) is GroupError.NONE
        for attempt in attempts:
            with pytest.raises(UnknownTopic):
                await attempt
        assert broker.cursors.subscriptions_of(NAME.full) == ["g"]
        await broker.stop()

    run(scenario())


def test_changes_of_schemas_and_policies_that_wait_for_their_turn_are_not_the_new_topic_s() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        for lock in (broker.schemas._changing, broker.namespaces._changing):
            await lock.acquire()
        waiting = [
            asyncio.ensure_future(broker.schemas.register(NAME, SCHEMA)),
            asyncio.ensure_future(
                broker.namespaces.change_topic(NAME, lambda _: {"max_producers_per_topic": 5})
            ),
        ]
        await settle()
        await broker.delete_topic(topic)
        for lock in (broker.schemas._changing, broker.namespaces._changing):
            lock.release()
        assert [type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)] == [
            UnknownTopic
        ] * 2
        await world.create()
        has_nothing(broker)
        await broker.stop()

    run(scenario())


def test_the_definitions_that_no_other_topic_has_go_with_the_topic() -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        other = TopicName.parse("persistent://public/default/other")
        for name, added in ((NAME, ()), (NAME, ("x",)), (other, ()), (other, ("y",))):
            fields = [{"name": one, "type": "int", "default": 0} for one in ("a", *added)]
            definition = json.dumps({"type": "record", "name": "R", "fields": fields})
            await broker.schemas.register(name, Schema(SchemaType.AVRO, definition.encode()))
        await broker.delete_topic(topic)
        await settle()
        assert [path for path, _ in await world.metadata.scan(SCHEMAS_ROOT)] == [
            f"{SCHEMAS_ROOT}{one:010}" for one in (1, 3)
        ]
        await broker.stop()

    run(scenario())


@pytest.mark.parametrize("is_made_again", [False, True])
def test_offsets_of_a_transaction_are_for_the_topic_that_there_was(is_made_again: bool) -> None:
    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create()
        transactions = broker.transactions
        made = await transactions.init_producer("x", 60_000)
        producer = Producer(made.producer_id, made.epoch)
        assert await transactions.add_group("x", producer, "g") is TransactionError.NONE
        request = CommitRequest("g", [OffsetToCommit(NAME.full, 0, 15)])
        assert await transactions.commit_offsets("x", producer, request) == [GroupError.NONE]
        if is_made_again:
            await broker.delete_topic(topic)
            await world.create()
        broker = await world.crash()
        assert await broker.transactions.end("x", producer, commit=True) is TransactionError.NONE
        found = broker.cursors.get(KEY)
        assert (None if found is None else found.mark_delete) == (None if is_made_again else 15)
        await broker.stop()

    run(scenario())


def test_however_much_a_topic_has_its_deletion_is_one_small_commit_and_the_rest_goes_in_pieces() -> None:
    """A transaction of a hundred thousand paths would hold up all clients, on the loop and behind the disk."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()
        topic = await world.create(3000)
        cursors = {CursorKey(f"g{n}", NAME.full, index): Cursor(n) for n in range(3) for index in range(3000)}
        await broker.cursors.commit(cursors)
        for index in range(0, 3000, 10):
            topic.partition(index)
        sizes: list[int] = []
        store = world.metadata.commit

        async def commit(operations: Sequence[CommitStep]) -> None:
            sizes.append(len(operations))
            await store(operations)

        world.metadata.commit = commit  # type: ignore[method-assign]
        await broker.delete_topic(topic)
        assert sizes[0] <= 4
        await broker._environment.tasks.ended()
        assert max(sizes) <= 500
        assert await world.metadata.scan("/cursors/") == []
        assert await world.metadata.scan("/deleted-topics/") == []
        await broker.stop()

    run(scenario())


def test_a_deleted_topic_leaves_nothing_in_memory() -> None:
    """Each partition of a deleted topic stayed behind with 2 KB, for as long as the server ran."""

    async def scenario() -> None:
        world = World()
        broker = await world.start()

        # By type: asked for its class, a dead weak proxy that another test has left would raise.
        others = [one for one in gc.get_objects() if issubclass(type(one), (Topic, Partition, ManagedLedger))]

        async def use() -> None:
            topic: Topic = await world.create(4)
            await furnish(broker)
            assert broker.kafka_topics.get("t") is broker.kafka_topics.get("public/default/t") is topic
            outcomes: list[Exception | None] = []
            for index in range(4):
                world.produce(topic.partition(index), outcomes, producer_id=7)
                broker.producers.of(topic.partition(index))
            await settle()
            await broker.snapshots.store(topic.open_partitions)
            await broker.retention.run_once()
            broker.rates.sample()
            await broker.delete_topic(topic)

        await use()
        await settle()
        gc.collect()
        left = [one for one in gc.get_objects() if issubclass(type(one), (Topic, Partition, ManagedLedger))]
        assert [one for one in left if one not in others] == []
        assert broker.kafka_topics._found == {}
        assert broker.producers._of == {}
        assert broker.cursors._holders == {}
        await broker.stop()

    run(scenario())
