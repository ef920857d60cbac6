"""What a consumer has acknowledged just before it leaves, or its subscription goes."""

import asyncio

import pytest

from magnetar.broker.subscriptions.ack_turns import TAKING_S_MAX
from magnetar.broker.subscriptions.errors import SubscriptionClosed
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.storage.store import EntryId, LedgerId

from .driver import World, acknowledging, scenario, settle


@scenario
async def test_what_a_consumer_has_acknowledged_before_it_leaves_is_stored(world: World) -> None:
    """A client that closes sends what it has not acknowledged yet: a long command, and CLOSE_CONSUMER behind it."""
    await world.publish(20)
    client = await world.sub()
    acknowledged = acknowledging(client, *client.positions)
    await client.leave()
    assert await world.stored_mark_delete() == 20
    await acknowledged
    assert world.subscription() is None


@scenario
async def test_what_has_to_be_looked_up_before_its_consumer_leaves_is_stored(world: World) -> None:
    await world.publish(2)
    first = await world.sub()
    await first.leave()
    again = await world.sub(permits=0)
    later = again.ack(first.positions[0])
    assert later is not None, "it was delivered to another consumer"
    acknowledged = asyncio.ensure_future(later)
    world.broker.subscriptions.leave_later(again.member)
    await settle()
    await acknowledged
    assert await world.stored_mark_delete() == 1


def test_what_takes_too_long_to_look_up_is_refused_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client could hold up the deletion of a topic, or the server's stop, with a hundred thousand ids."""

    async def main() -> None:
        world = await World().start()
        await world.publish(2)
        first = await world.sub()
        await first.leave()
        again = await world.sub(permits=0)
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def locate(_ledger_id: LedgerId, _entry_id: EntryId) -> None:
            await found

        monkeypatch.setattr(world.partition.log, "locate", locate)
        later = again.ack(first.positions[0])
        leaving = asyncio.ensure_future(again.leave())
        await settle()
        await world.advance(TAKING_S_MAX - 1)
        assert not leaving.done()
        await world.advance(1)
        assert leaving.done()
        found.set_result(None)
        with pytest.raises(SubscriptionClosed):
            await later
        monkeypatch.undo()
        assert (await world.sub()).entries == [0, 1]
        await world.stop()

    asyncio.run(main())


@scenario
async def test_a_consumer_that_comes_back_at_once_gets_nothing_that_was_acknowledged_before(
    world: World,
) -> None:
    await world.publish(20)
    client = await world.sub()
    acknowledged = acknowledging(client, *client.positions[:19])
    leaving = asyncio.ensure_future(client.leave())
    await asyncio.sleep(0)
    assert (await world.sub()).entries == [19]
    await leaving
    await acknowledged


@scenario
async def test_what_is_acknowledged_of_a_subscription_that_is_dropped_meanwhile_is_refused(
    world: World,
) -> None:
    await world.publish(40)
    client = await world.sub()
    acknowledged = acknowledging(client, *client.positions)
    await world.broker.subscriptions.delete(world.partition, "s", force=True)
    with pytest.raises(SubscriptionClosed):
        await acknowledged
    assert await world.stored_mark_delete() is None


@scenario
async def test_a_shared_consumer_acknowledges_nothing_below_an_id_after_it_has_left_either(
    world: World,
) -> None:
    await world.publish(20)
    client = await world.sub(kind=SubscriptionType.SHARED)
    acknowledged = acknowledging(client, *client.positions[:5])
    behind = client.ack(client.positions[10], cumulative=True)
    assert behind is not None, "it waits for the command before it"
    await client.leave()
    await asyncio.gather(acknowledged, behind)
    assert await world.stored_mark_delete() == 5
