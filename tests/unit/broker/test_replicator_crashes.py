"""What is left of replicators after a crash at any write."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.usecases.replicators import Action

from .replicator_world import (
    ALICE,
    AUDIT,
    KAFKA,
    ORDERS,
    SECRET,
    SUBSCRIPTION,
    Mortal,
    N,
    World,
    run,
)


async def _until_death(world: World, steps: int, change: Any) -> bool:
    """Let the process die at a write of `change`; whether it did."""
    assert isinstance(world.metadata, Mortal)
    world.metadata.died.clear()
    world.metadata.stop_after(steps)
    changing = asyncio.ensure_future(change)
    dying = asyncio.ensure_future(world.metadata.died.wait())
    await asyncio.wait({changing, dying}, return_when=asyncio.FIRST_COMPLETED)
    died = not changing.done()
    for one in (changing, dying):
        one.cancel()
    await asyncio.gather(changing, dying, return_exceptions=True)
    world.metadata.stop_after(1 << 30)
    return died


def _is_whole(world: World, topics: Sequence[TopicName]) -> bool:
    """Whether the configuration is there; with it, or without it, everything else is."""
    (*configs,) = world.broker.cases.replicators.configs(ALICE, N)
    for topic in topics:
        assert (world.pipeline(topic) is not None) is bool(configs), topic
        assert world.has_subscription(topic) is bool(configs), topic
        if configs:
            found = world.pipeline(topic)
            assert found is not None
            assert found.config["target"] == configs[0].topic_names[topic.local]
            assert found.config["credentials"] == SECRET
    return bool(configs)


@pytest.mark.parametrize("steps", range(12))
def test_a_crash_while_a_configuration_is_added_leaves_all_of_it_or_nothing(steps: int) -> None:
    async def scenario(world: World) -> None:
        topics = [await world.make(one) for one in (ORDERS, AUDIT)]
        assert topics
        mapping = {"orders": "copy", "audit": "copy"}
        await _until_death(world, steps, world.add(mapping, SECRET))
        await world.crash()
        _is_whole(world, (ORDERS, AUDIT))
        await world.add(mapping, SECRET)
        assert _is_whole(world, (ORDERS, AUDIT))

    run(scenario)


@pytest.mark.parametrize("steps", range(12))
def test_a_crash_while_a_configuration_is_replaced_leaves_the_old_one_or_the_new_one(steps: int) -> None:
    async def scenario(world: World) -> None:
        for one in (ORDERS, AUDIT):
            await world.make(one)
        await world.add({"orders": "old", "audit": "old"}, SECRET)
        await _until_death(world, steps, world.add({"orders": "new", "audit": "new"}, SECRET))
        await world.crash()
        assert _is_whole(world, (ORDERS, AUDIT))

    run(scenario)


@pytest.mark.parametrize("steps", range(10))
def test_a_crash_while_a_configuration_is_removed_leaves_all_of_it_or_nothing(steps: int) -> None:
    async def scenario(world: World) -> None:
        for one in (ORDERS, AUDIT):
            await world.make(one)
        await world.add({"orders": "copy", "audit": "copy"}, SECRET)
        removal = world.broker.cases.replicators.remove_config(ALICE, N, KAFKA)
        died = await _until_death(world, steps, removal)
        await world.crash()
        is_there = _is_whole(world, (ORDERS, AUDIT))
        assert is_there is (died and steps == 0)
        assert (b"/replicator-keys/" in await world.stored()) is is_there

    run(scenario)


@pytest.mark.parametrize("steps", range(6))
def test_a_crash_while_a_topic_is_made_leaves_it_replicated_from_its_beginning(steps: int) -> None:
    async def scenario(world: World) -> None:
        await world.add({"orders": "copy"}, SECRET)
        await _until_death(world, steps, world.make(ORDERS))
        await world.crash()
        if world.broker.topics.find(ORDERS) is None:
            await world.make(ORDERS)
        assert _is_whole(world, (ORDERS,))
        await world.publish(count=2)
        assert world.backlog() == 2

    run(scenario)


def test_a_subscription_that_a_user_has_dropped_is_there_again_after_a_start() -> None:
    async def scenario(world: World) -> None:
        topic = await world.make(ORDERS)
        await world.add({"orders": "copy"})
        await world.broker.subscription_admin.delete(topic.partition(0), SUBSCRIPTION)
        assert world.backlog() == 0
        with pytest.raises(SubscriptionNotFound):
            world.broker.subscription_admin.cursor(topic.partition(0), SUBSCRIPTION)
        await world.broker.cases.replicators.act(ALICE, ORDERS, "Kafka", Action.RESTART)
        assert world.has_subscription()

    run(scenario)
