"""Subscriptions as a whole hold their contract on random walks, and where walks once found that they did not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.broker.subscriptions.model import SubscriptionType

from .subscription import Walk
from .subscription_world import Client, World


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SubscriptionType)
def test_a_walk_breaks_nothing(kind: SubscriptionType, seed: int) -> None:
    assert asyncio.run(Walk(kind, seed, steps=80).run())["deliveries"]


def run(
    kind: SubscriptionType,
    story: Callable[[World, Client], Awaitable[None]],
    entry_cache_bytes: int = 1 << 20,
) -> None:
    async def main() -> None:
        world = await World(kind, entry_cache_bytes, uses_ack_sets=True).start()
        await story(world, await world.join())
        await world.settle()
        await world.drain()
        await world.stop()

    asyncio.run(main())


@pytest.mark.parametrize("kind", SubscriptionType)
def test_what_is_acknowledged_while_its_connection_is_full_is_not_sent(kind: SubscriptionType) -> None:
    """Found by shared, seed 71: the dispatcher had delivered it, and the outbox sent it all the same."""

    async def story(world: World, client: Client) -> None:
        await world.publish(3, "key", 0, 10)
        await world.publish(3, "key", 0, 10)
        world.set_writable(client, False)
        world.flow(client, 4)
        await world.settle()
        world.skip_to(3)
        world.set_writable(client, True)
        await world.settle()
        assert [entry.number for entry in world.entries if entry.number in client.has] == [1]
        assert client.permits == 1  # of what was not sent nothing was taken

    run(kind, story)


def test_an_entry_of_which_a_part_is_left_takes_the_permits_of_all_of_it() -> None:
    """Found by exclusive, seed 3: clients give permits back for what the ack set hides, too."""

    async def story(world: World, client: Client) -> None:
        await world.publish(5, "key", 0, 10)
        await world.publish(5, "key", 0, 10)
        world.flow(client, 5)
        await world.settle()
        await world.ack_part(client, world.entries[0], {3})
        world.nack(client, None)
        world.flow(client, 5)
        await world.settle()
        assert client.permits == 0
        assert world.expected == 5

    run(SubscriptionType.EXCLUSIVE, story)


def test_an_entry_that_is_acknowledged_in_two_parts_is_done() -> None:
    """Found by key_shared, seed 368: skipped to its middle and then past its end, it was delivered all the same."""

    async def story(world: World, client: Client) -> None:
        await world.publish(10, "key", 2_000, 10)
        world.skip_to(5)
        world.flow(client, 100)
        await world.settle()
        world.skip_to(10)
        await world.advance(5.0)
        await world.settle()
        assert not client.has

    run(SubscriptionType.SHARED, story)


def test_a_read_that_was_begun_before_a_rewind_is_thrown_away() -> None:
    """Found by failover, seed 5103: the rewind came before the read's coroutine had taken its first step."""

    async def story(world: World, client: Client) -> None:
        for _ in range(40):
            await world.publish(1, "key", 0, 500)
        world.flow(client, 5)
        await world.settle()
        assert world.expected == 5
        world.flow(client, 5)
        await asyncio.sleep(0)  # the read is a task by now
        world.nack(client, None)
        await world.settle()
        assert world.expected == 5  # again the first ones, not those that follow

    run(SubscriptionType.EXCLUSIVE, story, entry_cache_bytes=1_000)
