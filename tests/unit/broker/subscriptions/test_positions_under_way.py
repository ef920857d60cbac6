"""Positions that are on their way to the disk while consumers come, go or are moved: no write undoes another."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.errors import NotLeader
from magnetar.broker.subscriptions.model import AckedId, SubscriptionType
from magnetar.broker.subscriptions.stored_positions import SAVE_INTERVAL_S_MAX
from magnetar.ledger.cursor import Cursor

from .driver import World, scenario, settle

SHARED = SubscriptionType.SHARED


def commits(world: World, offset: int) -> "asyncio.Future[None]":
    """A Kafka client commits an offset: the write that this begins."""
    newest = world.broker.cursors.newest(world.key)
    cursor = Cursor() if newest is None else newest.copy()
    cursor.commit(offset)
    return world.broker.cursors.submit({world.key: cursor})


async def next_round(world: World) -> None:
    """Of the writes of metadata that wait, those that share the next commit become durable."""
    world.metadata.release()
    world.metadata.hold()
    await settle()


@pytest.mark.parametrize("is_group", [False, True])
def test_a_kafka_client_commits_while_a_consumer_makes_or_takes_over_the_position(is_group: bool) -> None:
    """The consumer began where it had stored, and stored that over what was committed."""

    @scenario
    async def meanwhile(world: World) -> None:
        if is_group:
            await world.broker.cursors.commit({world.key: Cursor()})
        await world.publish(4)
        world.metadata.hold()
        coming = asyncio.create_task(world.sub())
        await settle()
        moving = commits(world, 2)
        await next_round(world)
        assert not coming.done()
        world.metadata.release()
        await moving
        client = await coming
        assert client.entries == [2, 3]
        await client.leave()
        assert await world.stored_mark_delete() == 2
        assert world.cursor().holds_data

    meanwhile()


@scenario
async def test_a_consumer_makes_no_position_where_a_kafka_client_has_just_committed_one(world: World) -> None:
    await world.publish(4)
    coming = asyncio.create_task(world.sub(rollback_s=10))
    await asyncio.sleep(0)  # it looks for its first message in the log
    assert world.broker.cursors.newest(world.key) is None
    await commits(world, 2)
    assert (await coming).entries == [2, 3]


@scenario
async def test_a_consumer_waits_for_each_write_of_its_position(world: World) -> None:
    await world.publish(4)
    await (await world.sub()).leave()
    world.metadata.hold()
    moving = [commits(world, 1)]
    await settle()
    coming = asyncio.create_task(world.sub())
    await settle()
    moving.append(commits(world, 3))
    await next_round(world)
    assert not coming.done()
    world.metadata.release()
    assert (await coming).entries == [3]
    await asyncio.gather(*moving)


@scenario
async def test_what_consumers_store_does_not_undo_what_a_kafka_transaction_commits(world: World) -> None:
    await world.publish(4)
    client = await world.sub(kind=SHARED)
    subscription = world.subscription()
    assert subscription is not None
    world.metadata.hold()
    moving = commits(world, 2)
    await settle()
    client.ack(client.positions[3])
    storing = asyncio.create_task(world.broker.subscriptions.store(subscription))
    await settle()
    world.metadata.release()
    await asyncio.gather(moving, storing)
    stored = await stored_cursor(world)
    assert (stored.mark_delete, stored.ranges) == (2, [(3, 4)])


@scenario
async def test_a_kafka_transaction_that_commits_what_lies_behind_takes_nothing_back_for_long(
    world: World,
) -> None:
    await world.publish(4)
    client = await world.sub()
    client.ack(client.positions[2], cumulative=True)
    await world.advance(1)
    assert await world.stored_mark_delete() == 3
    await commits(world, 1)
    assert world.cursor().mark_delete == 3
    await world.advance(1)
    assert await world.stored_mark_delete() == 3


@scenario
async def test_an_administrator_makes_no_position_over_one_that_is_on_its_way(world: World) -> None:
    await world.publish(4)
    world.metadata.hold()
    moving = commits(world, 3)
    made = asyncio.create_task(world.broker.subscriptions.create(world.partition, "s", 0))
    await settle()
    world.metadata.release()
    await moving
    assert not await made
    assert await world.stored_mark_delete() == 3


@scenario
async def test_properties_that_are_set_leave_a_position_that_is_on_its_way(world: World) -> None:
    await world.publish(4)
    await (await world.sub()).leave()
    world.metadata.hold()
    moving = commits(world, 3)
    registry = world.broker.subscriptions
    setting = asyncio.create_task(registry.set_properties(world.partition, "s", {"owner": "tests"}))
    await settle()
    world.metadata.release()
    await asyncio.gather(moving, setting)
    assert await world.stored_mark_delete() == 3
    assert registry.properties(world.cursor()) == {"owner": "tests"}


@pytest.mark.parametrize("fails", [False, True])
def test_a_subscription_whose_group_is_deleted_while_it_is_let_go_does_not_come_back(fails: bool) -> None:
    @scenario
    async def deleted(world: World) -> None:
        await world.publish(4)
        client = await world.sub()
        client.ack(client.positions[0])
        world.metadata.hold()
        leaving = asyncio.create_task(client.leave())
        await settle()
        dropping = asyncio.create_task(world.broker.cursors.drop_subscription("s"))
        await settle()
        await world.broker.subscription_admin.skip_to(world.partition, "s", 3)
        await next_round(world)  # the position is stored; what it was moved to comes behind the deletion
        world.metadata.fail_next = fails
        world.metadata.release()
        await asyncio.wait([leaving, dropping])
        await world.advance(SAVE_INTERVAL_S_MAX)
        assert await world.stored_mark_delete() == (3 if fails else None)
        assert world.subscription() is None

    deleted()


def to(offset: int) -> Callable[[], Coroutine[Any, Any, int]]:
    async def find() -> int:
        return offset

    return find


@scenario
async def test_a_reset_closes_consumers_that_have_come_meanwhile(world: World) -> None:
    """It was answered as done, and the consumers went on from where they were."""
    await world.publish(4)
    await (await world.sub()).leave()
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def find() -> int:
        return await asyncio.shield(found)

    resetting = asyncio.create_task(world.broker.subscription_admin.reset(world.partition, "s", find))
    await settle()
    client = await world.sub()
    client.ack(client.positions[3], cumulative=True)
    found.set_result(1)
    await resetting
    assert client.is_closed
    assert await world.stored_mark_delete() == 1


@scenario
async def test_a_reset_counts_also_when_the_last_consumer_is_just_gone(world: World) -> None:
    await world.publish(4)
    client = await world.sub()
    client.ack(client.positions[2], cumulative=True)
    world.metadata.hold()
    leaving = asyncio.create_task(client.leave())
    await settle()
    resetting = asyncio.create_task(world.broker.subscription_admin.reset(world.partition, "s", to(0)))
    await settle()
    world.metadata.release()
    await asyncio.gather(leaving, resetting)
    assert await world.stored_mark_delete() == 0


@scenario
async def test_a_reset_of_a_partition_that_goes_meanwhile_is_refused_and_stores_nothing(world: World) -> None:
    """The position is the next broker's by then."""
    await world.publish(4)
    await world.sub()

    async def find() -> int:
        world.broker.subscriptions.abandon(world.partition)
        world.partition.close()
        return 2

    with pytest.raises(NotLeader):
        await world.broker.subscription_admin.reset(world.partition, "s", find)
    assert await world.stored_mark_delete() == 0


def test_a_transaction_acknowledges_nothing_that_cannot_be_read() -> None:
    async def main() -> None:
        world = await World(entry_cache_bytes=1).start()
        await world.publish(3)
        client = await world.sub(kind=SHARED)
        await client.leave()  # what was delivered is not remembered any more
        await world.sub(kind=SHARED, permits=0)
        subscription = world.subscription()
        assert subscription is not None
        ids = [AckedId(*one) for one in client.positions]
        assert await subscription.to_acknowledge(ids, cumulative=False) == [(0, 1), (1, 2), (2, 3)]
        for ledger_id in list(world.store.ledgers):
            await world.store.delete(ledger_id)
        with pytest.raises(StorageError):
            await subscription.to_acknowledge(ids, cumulative=False)
        await world.stop()

    asyncio.run(main())


async def stored_cursor(world: World) -> Cursor:
    """What a start after a kill would find."""
    (found,) = [Cursor.decode(value.value) for _, value in await world.metadata.scan("/cursors/")]
    return found
