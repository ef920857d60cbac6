"""What all subscriptions together may remember of messages that are not acknowledged."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.broker.subscriptions.dispatch.delayed import NEW_ROW_BYTES
from magnetar.broker.subscriptions.model import SubscriptionType
from magnetar.broker.subscriptions.remembered import ROW_BYTES, ROWS_EACH, Rows

from .driver import Client, World, settle

SHARED = SubscriptionType.SHARED
COUNT = 1000


def with_room_for(rows: int, scenario: Callable[[World], Awaitable[None]], count: int = COUNT) -> None:
    async def main() -> None:
        world = await World(entry_cache_bytes=rows * ROW_BYTES).start()
        await world.publish(count)
        await scenario(world)
        await world.stop()

    asyncio.run(main())


def rows_of(world: World) -> int:
    return world.broker.subscriptions._environment.rows.count


async def settled() -> None:
    for _ in range(20):
        await settle()


async def all_that_comes(client: Client) -> list[int]:
    """The entries of a client that acknowledges what it gets, some at a time."""
    got: list[int] = []
    while client.got:
        ids = client.positions
        got += client.taken()
        for start in range(0, len(ids), 100):
            looking = client.ack(*ids[start : start + 100])
            if looking is not None:
                await looking
        await settled()
    return got


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
def test_clients_that_acknowledge_nothing_get_so_much_and_those_that_do_get_all(
    kind: SubscriptionType,
) -> None:
    async def scenario(world: World) -> None:
        silent = [await world.sub(f"silent-{number}", kind=kind) for number in range(3)]
        client = await world.sub("s", kind=kind)
        await settled()
        assert [len(one.got) for one in silent] == [ROWS_EACH] * 3
        assert rows_of(world) == 8 * ROWS_EACH  # a unit and an id of each
        assert await all_that_comes(client) == list(range(COUNT))
        assert rows_of(world) == 6 * ROWS_EACH

    with_room_for(2 * ROWS_EACH, scenario)


def test_a_subscription_goes_on_when_another_one_has_left() -> None:
    async def scenario(world: World) -> None:
        leaver = await world.sub("leaver", kind=SHARED, permits=200)
        client = await world.sub("s", kind=SHARED)
        await settled()
        assert (len(leaver.got), len(client.got)) == (200, 300)
        await leaver.leave()
        await settled()
        assert len(client.got) == 500
        await client.leave()
        assert rows_of(world) == 0

    with_room_for(1000, scenario)


def test_messages_that_are_to_come_much_later_are_read_in_part() -> None:
    async def scenario(world: World) -> None:
        await world.publish(2 * COUNT, deliver_at_time=world.clock.now_ms() + 60_000)
        client = await world.sub("s", kind=SHARED, permits=2 * COUNT)
        await settled()
        subscription = world.subscription()
        assert subscription is not None
        assert subscription.dispatcher is not None
        known = subscription.dispatcher.delayed_count
        assert known < 1.1 * ROWS_EACH * ROW_BYTES / NEW_ROW_BYTES
        assert ROWS_EACH <= rows_of(world) < 1.1 * ROWS_EACH
        assert not client.got
        await world.advance(61)
        await settled()
        assert await all_that_comes(client) == list(range(2 * COUNT))
        assert rows_of(world) == 0

    with_room_for(50, scenario, 0)


def test_one_consumer_that_gets_all_goes_on_and_what_was_forgotten_is_acknowledged_all_the_same() -> None:
    async def scenario(world: World) -> None:
        client: Client = await world.sub("s")
        await settled()
        assert len(client.got) == COUNT
        assert rows_of(world) == 400
        assert len(await all_that_comes(client)) == COUNT
        assert world.cursor().mark_delete == COUNT

    with_room_for(400, scenario)


def test_what_is_acknowledged_counts_no_more() -> None:
    async def scenario(world: World) -> None:
        client = await world.sub("s", kind=SHARED)
        await settled()
        assert rows_of(world) == 100
        client.ack(*client.positions)
        assert rows_of(world) == 0

    with_room_for(1000, scenario, 50)


def test_none_is_woken_before_there_is_room() -> None:
    rows, woken = Rows(80 * ROW_BYTES), []
    rows.count = 80
    rows.waiting.add(lambda: woken.append(1))
    for left in (70, 69):
        assert not woken
        rows.count = left
        rows.wake_if_enough()
    assert woken == [1]
