"""Where subscriptions begin, are moved to, and are said to be: ids and times against the log."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.settings_subscriptions import FAILOVER_DELAY_MS
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.errors import (
    SubscriptionBusy,
    SubscriptionClosed,
    SubscriptionNotAllowed,
    SubscriptionNotFound,
)
from magnetar.broker.subscriptions.model import InitialPosition, SubscriptionType
from magnetar.broker.subscriptions.registry import READER_RETURNS_S
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

from .driver import Client, World, acknowledging, scenario, settle

SHARED = SubscriptionType.SHARED
LATEST = (positions.LATEST, positions.LATEST)
EARLIEST = (-1, -1)


async def reader(world: World, start: tuple[int, int], name: str = "reader-1", permits: int = 1000) -> Client:
    return await world.sub(name, is_durable=False, start=start, permits=permits)


# Readers


@scenario
async def test_a_reader_begins_with_the_entry_of_its_start_id(world: World) -> None:
    await world.publish(5)
    position = await world.position_at(2)
    assert (await reader(world, position, "a")).entries == [2, 3, 4]
    assert (await reader(world, EARLIEST, "b")).entries == [0, 1, 2, 3, 4]
    late = await reader(world, LATEST, "c")
    assert late.entries == []
    await world.publish(1)
    assert late.entries == [5]


@scenario
async def test_a_reader_leaves_nothing_behind(world: World) -> None:
    await world.publish(5)
    client = await reader(world, EARLIEST)
    client.ack(client.positions[3], cumulative=True)
    await world.advance(5)
    assert world.broker.cursors.subscriptions() == []
    assert world.broker.cursors.held_from(world.partition.topic.name.full, 0) is None
    await client.leave()
    assert world.subscription("reader-1") is None
    assert (await reader(world, EARLIEST)).entries == [0, 1, 2, 3, 4]


@scenario
async def test_a_reader_that_seeks_is_expected_back_for_a_minute(world: World) -> None:
    await world.publish(5)
    client = await reader(world, LATEST)
    await world.seek(client, await world.position_at(3))
    assert client.is_closed
    again = await reader(world, LATEST)
    assert again.entries == [3, 4], "where it was moved to counts, not the id with which it comes back"
    await world.seek(again, await world.position_at(1))
    await world.advance(READER_RETURNS_S)
    assert world.subscription("reader-1") is None


@scenario
async def test_a_reader_that_seeks_again_is_expected_back_for_another_minute(world: World) -> None:
    """The first minute ended while it was on its way back, and it began where it had begun first."""
    await world.publish(5)
    await world.seek(await reader(world, LATEST), await world.position_at(3))
    again = await reader(world, LATEST)
    await world.advance(READER_RETURNS_S - 1)
    await world.seek(again, await world.position_at(1))
    await world.advance(1)
    last = await reader(world, LATEST)
    assert last.entries == [1, 2, 3, 4]
    await last.leave()
    assert not world.broker.subscriptions._expected, "nothing keeps what it had"


@scenario
async def test_durable_and_not_durable_exclude_each_other(world: World) -> None:
    await world.sub("s", kind=SHARED)
    with pytest.raises(
        SubscriptionNotAllowed, match="Durable subscription with the same name already exists"
    ):
        await reader(world, EARLIEST, "s")
    await reader(world, EARLIEST, "r")
    with pytest.raises(SubscriptionNotAllowed, match="NonDurable"):
        await world.sub("r")


@scenario
async def test_a_roll_back_begins_so_many_seconds_ago(world: World) -> None:
    await world.publish(2)
    await world.advance(100)
    await world.publish(2)
    await world.advance(10)
    assert (await world.sub("new", rollback_s=50)).entries == [2, 3]
    assert (await world.sub("reader", rollback_s=1000, is_durable=False)).entries == [0, 1, 2, 3]
    assert (await world.sub("none", rollback_s=5)).entries == []


# Seeking


@scenario
async def test_a_seek_closes_the_consumers_moves_and_is_stored(world: World) -> None:
    await world.publish(6)
    first = await world.sub(kind=SHARED, consumer="a")
    second = await world.sub(kind=SHARED, consumer="b")
    first.ack(*first.positions[:5])
    await world.seek(first, await world.position_at(2))
    assert first.is_closed
    assert second.is_closed
    assert await world.stored_mark_delete() == 2
    again = await world.sub(kind=SHARED)
    assert again.entries == [2, 3, 4, 5]


@scenario
async def test_a_consumer_that_comes_back_during_a_seek_waits_for_its_end(world: World) -> None:
    await world.publish(4)
    client = await world.sub()
    world.metadata.hold()
    seeking = asyncio.ensure_future(world.seek(client, await world.position_at(3)))
    await settle()
    assert client.is_closed
    coming = asyncio.ensure_future(world.sub())
    await settle()
    assert not coming.done()
    world.metadata.release()
    await seeking
    assert (await coming).entries == [3]


@scenario
async def test_what_is_acknowledged_before_a_seek_comes_again_after_it(world: World) -> None:
    """A long command is taken piece by piece: what was left of it acknowledged messages behind the new position."""
    await world.publish(5)
    client = await world.sub()
    beginning = await world.position_at(0)
    world.metadata.hold()
    acknowledged = acknowledging(client, *client.positions)
    seeking = asyncio.ensure_future(world.seek(client, beginning))
    await settle()
    assert client.is_closed
    world.metadata.release()
    await seeking
    await acknowledged
    assert (await world.sub()).entries == [0, 1, 2, 3, 4]


@scenario
async def test_a_seek_of_a_partition_that_goes_meanwhile_is_refused(world: World) -> None:
    """Its client would take it for done, and continue where it was."""
    await world.publish(4)
    client = await world.sub()
    subscription = world.subscription()
    assert subscription is not None

    async def find() -> int:
        world.broker.subscriptions.abandon(world.partition)
        return 2

    with pytest.raises(SubscriptionClosed):
        await world.broker.subscriptions.seek(subscription, find())
    assert client.is_closed
    assert await world.stored_mark_delete() == 0


@scenario
async def test_a_seek_that_cannot_be_stored_holds_all_the_same_and_says_so(world: World) -> None:
    await world.publish(4)
    client = await world.sub()
    world.metadata.fail_next = 1
    with pytest.raises(MetadataError):
        await world.seek(client, await world.position_at(3))
    assert (await world.sub()).entries == [3]
    await world.advance(1)
    assert await world.stored_mark_delete() == 3


@scenario
async def test_seeks_by_time_find_the_first_entry_published_then_or_later(world: World) -> None:
    start_ms = world.clock.now_ms()
    for _ in range(5):
        await world.publish(1)
        await world.advance(10)
    find = positions.offset_at_time
    assert await find(world.partition.log, start_ms) == 0
    assert await find(world.partition.log, start_ms + 1) == 1
    assert await find(world.partition.log, start_ms + 30_000) == 3
    assert await find(world.partition.log, start_ms + 40_001) == 5
    assert await find(world.partition.log, 0) == 0


@scenario
async def test_an_event_time_in_the_future_does_not_lead_a_seek_by_time_astray(world: World) -> None:
    start_ms = world.clock.now_ms()
    await world.publish(1, event_time=start_ms + 1_000_000)
    await world.advance(10)
    await world.publish(1)
    assert await positions.offset_at_time(world.partition.log, start_ms + 5_000) == 1


@scenario
async def test_positions_that_are_nowhere_resolve_to_what_follows(world: World) -> None:
    await world.publish(3)
    ledger_id, _ = await world.position_at(0)
    find = positions.offset_of
    assert await find(world.partition.log, *EARLIEST) == 0
    assert await find(world.partition.log, ledger_id, -1) == 0
    assert await find(world.partition.log, ledger_id, 3) == 3
    assert await find(world.partition.log, ledger_id + 99, 0) == 3
    assert await find(world.partition.log, *LATEST) == 3


# The last message


@scenario
async def test_the_last_message_is_the_last_of_its_batch_and_never_a_marker(world: World) -> None:
    async def last() -> tuple[int, int]:
        found = await positions.last_message(world.partition, world.broker.subscriptions.forms)
        return found.entry_id, found.batch_index

    assert await last() == (-1, -1)
    await world.publish(1)
    assert await last() == (0, -1)
    await world.publish(1, messages=7)
    assert await last() == (1, 6)
    await world.publish(3, marker_type=20)
    assert await last() == (1, 6)
    await world.publish(1, num_messages_in_batch=1)
    assert await last() == (5, 0), "a batch of one is a batch"


@scenario
async def test_a_topic_of_markers_alone_has_no_last_message(world: World) -> None:
    await world.publish(2, marker_type=20)
    found = await positions.last_message(world.partition, world.broker.subscriptions.forms)
    assert found.entry_id == -1


@scenario
async def test_the_mark_delete_position_is_the_last_entry_that_is_done_as_a_whole(world: World) -> None:
    async def below(offset: int) -> int:
        return (await positions.position_below(world.partition.log, offset))[1]

    assert await below(0) == -1
    await world.publish(3, messages=4)
    assert [await below(offset) for offset in (0, 1, 3, 4, 5, 8, 11, 12)] == [-1, -1, -1, 0, 0, 1, 1, 2]


# Dropping


@scenario
async def test_the_only_consumer_unsubscribes_and_the_cursor_is_gone(world: World) -> None:
    await world.publish(2)
    client = await world.sub()
    await world.broker.subscriptions.unsubscribe(client.member, force=False)
    assert await world.stored_mark_delete() is None
    assert world.subscription() is None
    await world.advance(5)
    assert await world.stored_mark_delete() is None, "nothing writes it back"
    assert (await world.sub(initial_position=InitialPosition.LATEST)).entries == []


@scenario
async def test_one_of_many_may_unsubscribe_by_force_only(world: World) -> None:
    first = await world.sub(kind=SHARED, consumer="a")
    second = await world.sub(kind=SHARED, consumer="b")
    with pytest.raises(ConsumerBusy):
        await world.broker.subscriptions.unsubscribe(first.member, force=False)
    await world.broker.subscriptions.unsubscribe(first.member, force=True)
    assert second.is_closed
    assert await world.stored_mark_delete() is None


@scenario
async def test_subscriptions_are_made_listed_and_deleted_without_consumers(world: World) -> None:
    registry, partition = world.broker.subscriptions, world.partition
    await world.publish(3)
    assert await registry.create(partition, "new", 1, {"k": "v"})
    assert not await registry.create(partition, "new", 2)
    assert registry.names(partition) == ["new"]
    assert registry.properties(world.cursor("new")) == {"k": "v"}
    client = await world.sub("new")
    assert client.entries == [1, 2]
    with pytest.raises(SubscriptionBusy):
        await registry.delete(partition, "new")
    await registry.delete(partition, "new", force=True)
    assert client.is_closed
    assert registry.names(partition) == []
    with pytest.raises(SubscriptionNotFound):
        await registry.delete(partition, "new")


# One position with Kafka's group of the same name


@scenario
async def test_a_group_with_members_keeps_pulsar_consumers_out(world: World) -> None:
    consumed = {("s", world.partition.topic.name.full)}
    world.broker.subscriptions._consumes = lambda group, topic: (group, topic) in consumed
    with pytest.raises(SubscriptionBusy, match="Kafka group"):
        await world.sub()
    assert (await reader(world, EARLIEST, "r")) is not None, "a reader shares no position"
    consumed.clear()
    await world.sub()


@scenario
async def test_a_kafka_commit_between_two_consumers_is_where_the_second_begins(world: World) -> None:
    await world.publish(6)
    client = await world.sub()
    client.ack(client.positions[0], client.positions[4])
    await client.leave()
    cursor = world.cursor().copy()
    cursor.commit(3)
    world.metadata.hold()
    committing = asyncio.ensure_future(world.broker.cursors.commit({world.key: cursor}))
    await settle()
    coming = asyncio.ensure_future(world.sub())
    await settle()
    assert not coming.done(), "a commit that is on its way comes first"
    world.metadata.release()
    await committing
    assert (await coming).entries == [3, 5]


@scenario
async def test_a_kafka_cursor_that_pulsar_consumers_use_holds_data_from_then_on(world: World) -> None:
    await world.publish(4)
    key = CursorKey("s", world.partition.topic.name.full, 0)
    await world.broker.cursors.commit({key: Cursor(2)})
    client = await world.sub()
    assert client.entries == [2, 3]
    await client.leave()
    assert world.cursor().holds_data


@scenario
async def test_a_transaction_that_commits_offsets_under_connected_consumers_acknowledges(
    world: World,
) -> None:
    await world.publish(6)
    client = await world.sub()
    cursor = world.cursor().copy()
    cursor.commit(4)
    await world.broker.cursors.commit({world.key: cursor})
    assert world.cursor().mark_delete == 4
    client.nack()
    await settle()
    assert client.entries == [0, 1, 2, 3, 4, 5, 4, 5]


@scenario
async def test_a_group_that_kafka_deletes_closes_what_is_left_of_its_subscription(world: World) -> None:
    await world.publish(2)
    client = await world.sub()
    await world.broker.cursors.drop_subscription("s")
    assert client.is_closed
    assert (await world.sub(initial_position=InitialPosition.LATEST)).entries == []


# Failover and Key_Shared


@scenario
async def test_failover_tells_which_consumer_is_active_and_the_next_goes_on_at_the_mark(world: World) -> None:
    failover = SubscriptionType.FAILOVER
    await world.publish(4)
    first = await world.sub(kind=failover, consumer="a")
    second = await world.sub(kind=failover, consumer="b")
    assert (first.active, second.active) == ([True], [False])
    assert (first.entries, second.entries) == ([0, 1, 2, 3], [])
    first.ack(first.positions[1], cumulative=True)
    await first.leave()
    await settle()
    assert (second.active, second.entries) == ([False], []), "it waits"
    world.clock.advance(FAILOVER_DELAY_MS / 1000)
    await settle()
    assert second.active == [False, True]
    assert second.entries == [2, 3]


@scenario
async def test_what_a_failover_consumer_acknowledges_in_the_delay_does_not_go_to_the_next(
    world: World,
) -> None:
    failover = SubscriptionType.FAILOVER
    await world.publish(4)
    first = await world.sub(kind=failover, consumer="b", spec={"priority_level": 1})
    second = await world.sub(kind=failover, consumer="a")
    first.ack(first.positions[2], cumulative=True)
    await settle()
    assert second.entries == []
    world.clock.advance(FAILOVER_DELAY_MS / 1000)
    await settle()
    assert (first.entries, second.entries) == ([0, 1, 2, 3], [3])


@scenario
async def test_key_shared_consumers_share_by_key(world: World) -> None:
    kind = SubscriptionType.KEY_SHARED
    clients = [await world.sub(kind=kind, consumer=name) for name in "abc"]
    for number in range(60):
        await world.publish(1, partition_key=f"k{number % 12}", payload=b"%03d" % (number % 12))
    owners: dict[bytes, set[int]] = {}
    for index, client in enumerate(clients):
        for one in client.got:
            owners.setdefault(bytes(one.payload)[-24:], set()).add(index)
    assert len(owners) == 12
    assert all(len(indexes) == 1 for indexes in owners.values())
    assert sum(len(client.got) for client in clients) == 60


@scenario
async def test_consumers_that_share_keys_in_other_ways_do_not_go_together(world: World) -> None:
    kind = SubscriptionType.KEY_SHARED
    await world.sub(kind=kind, consumer="a")
    with pytest.raises(SubscriptionBusy):
        await world.sub(kind=kind, consumer="b", spec={"is_sticky": True, "hash_ranges": ((0, 65535),)})


# Deletion, termination and retention


@scenario
async def test_the_end_of_a_terminated_topic_is_told_once_when_all_is_acknowledged(world: World) -> None:
    await world.publish(2)
    first = await world.sub("first")
    second = await world.sub("second")
    first.ack(first.positions[1], cumulative=True)
    assert first.ends == 0
    await world.broker.topics.terminate(world.topic)
    assert (first.ends, second.ends) == (1, 0)
    second.ack(second.positions[0])
    assert second.ends == 0
    second.ack(second.positions[1])
    assert second.ends == 1
    late = await world.sub("late", initial_position=InitialPosition.LATEST)
    assert late.ends == 1


@scenario
async def test_deleting_a_topic_closes_its_consumers_and_drops_its_subscriptions(world: World) -> None:
    client = await world.sub()
    topic = world.topic
    await world.broker.delete_topic(topic)
    assert client.is_closed
    assert world.broker.cursors.subscriptions() == []


@scenario
async def test_what_retention_has_taken_counts_as_acknowledged(world: World) -> None:
    await world.publish(5)
    client = await world.sub(permits=1)
    assert client.entries == [0]
    await world.partition.log.trim(log_start=3)
    client.flow(10)
    await settle()
    assert client.entries == [0, 3, 4]
    assert world.cursor().mark_delete == 3
