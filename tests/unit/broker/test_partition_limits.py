"""What a change of policies does to partitions that are open, however many there are."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.testing.pulsar import PulsarDoor, running_door

TOPIC = TopicName.parse("persistent://public/default/wide")
PARTITIONS = 2_000
RATE = {"publishMaxMessageRate": {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": 700}}
Scenario = Callable[[PulsarDoor, Topic], Coroutine[Any, Any, None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            async with running_door(tmp_path) as door:
                topics = door.broker.topics
                await topics.create([topics.plan(NewTopic(TOPIC, PARTITIONS, 1))])
                topic = topics.get(TOPIC)
                for index in range(PARTITIONS):
                    topic.partition(index)
                await scenario(door, topic)

        asyncio.run(main())

    return run


def limited(topic: Topic) -> int:
    """How many of the partitions have the limit."""
    return sum(one.publish_limit is not None for one in topic.open_partitions)


async def turns_until(is_so: Callable[[], bool]) -> None:
    for _ in range(10 * PARTITIONS):
        await asyncio.sleep(0)
        if is_so():
            return
    raise AssertionError("it was not so after many turns of the loop")


async def watched(topic: Topic, change: Coroutine[Any, Any, None]) -> tuple[int, int]:
    """How many turns others had, and how many partitions the largest step was."""
    turns = step_max = before = 0
    task = asyncio.ensure_future(change)
    while not task.done():
        await asyncio.sleep(0)
        now = limited(topic)
        turns, step_max, before = turns + 1, max(step_max, abs(now - before)), now
    await task
    return turns, step_max


def test_a_namespaces_policy_reaches_very_many_partitions_in_turns(run: Callable[[Scenario], None]) -> None:
    async def scenario(door: PulsarDoor, topic: Topic) -> None:
        change = door.broker.namespaces.change("public/default", lambda found: {**found, **RATE})
        turns, step_max = await watched(topic, change)
        assert limited(topic) == PARTITIONS
        assert turns > PARTITIONS // 50
        assert step_max <= 50

    run(scenario)


def test_a_topics_policy_and_a_resource_group_do_so_too(run: Callable[[Scenario], None]) -> None:
    async def scenario(door: PulsarDoor, topic: Topic) -> None:
        broker = door.broker
        turns, _ = await watched(
            topic, broker.namespaces.change_topic(TOPIC, lambda found: {**found, **RATE})
        )
        assert (limited(topic), turns > PARTITIONS // 50) == (PARTITIONS, True)
        await broker.resource_groups.put("g", {"publishRateInMsgs": 5})
        await broker.namespaces.change("public/default", lambda found: {**found, "resource_group_name": "g"})
        shared = {one.shared_publish_limit for one in topic.open_partitions}
        turns, _ = await watched(topic, broker.resource_groups.put("g", {"publishRateInMsgs": 6}))
        assert turns > PARTITIONS // 50
        assert len(shared) == 1
        assert {one.shared_publish_limit for one in topic.open_partitions} != shared

    run(scenario)


def test_a_change_whose_client_has_gone_reaches_all_partitions(run: Callable[[Scenario], None]) -> None:
    async def scenario(door: PulsarDoor, topic: Topic) -> None:
        task = asyncio.ensure_future(
            door.broker.namespaces.change("public/default", lambda found: {**found, **RATE})
        )
        await turns_until(lambda: limited(topic) > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert 0 < limited(topic) < PARTITIONS
        await turns_until(lambda: limited(topic) == PARTITIONS)

    run(scenario)


def test_changes_that_are_applied_side_by_side_end_with_the_last_one(run: Callable[[Scenario], None]) -> None:
    async def scenario(door: PulsarDoor, topic: Topic) -> None:
        change = door.broker.namespaces.change
        await asyncio.gather(
            change("public/default", lambda found: {**found, **RATE}),
            change("public/default", lambda found: {**found, "publishMaxMessageRate": None}),
        )
        assert limited(topic) == 0

    run(scenario)
