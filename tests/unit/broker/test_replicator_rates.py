"""Rates of replicators: how far each may read before its next batch, and what counts."""

from typing import Any

import pytest

from magnetar.base.config import LONG_MAX
from magnetar.base.names import TopicName
from magnetar.broker.compaction.plan import plan
from magnetar.broker.quotas.replicator_limit import BATCH_S_MAX
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.compaction import latest

from .compaction.keyed import kafka_batch
from .subscriptions.driver import NAME, World, scenario, settle

RATE = "replicatorDispatchRate"
PLENTY = 1 << 30
A, B = "pulsar.repl.Kafka.a", "pulsar.repl.Kafka.b"


def rate(messages: int = -1, size: int = -1, period_s: int = 1) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period_s,
    }


async def of_namespace(world: World, value: Any) -> None:
    await world.broker.namespaces.change("public/default", lambda found: {**found, RATE: value})


async def of_topic(world: World, value: Any, topic: TopicName = NAME) -> None:
    await world.broker.namespaces.change_topic(topic, lambda found: {**found, RATE: value})


async def admit(
    world: World, begin: int, name: str = A, *, end: int | None = None, bytes_max: int = PLENTY
) -> int:
    partition = world.partition
    end = partition.log.high_watermark if end is None else end
    return await world.broker.replicator_rates.admit(partition, name, begin, end, bytes_max)


@scenario
async def test_without_a_rate_everything_may_go(world: World) -> None:
    await world.publish(100)
    assert await admit(world, 0) == 100
    await of_namespace(world, rate(0, 0, 10))
    assert await admit(world, 0) == 100


@scenario
async def test_a_periods_worth_goes_and_the_rest_as_time_passes(world: World) -> None:
    await of_namespace(world, rate(10, period_s=1000))
    await world.publish(100)
    assert await admit(world, 0) == 10
    assert await admit(world, 10) == 10
    world.clock.advance(99)
    assert await admit(world, 10) == 10
    world.clock.advance(2)
    assert await admit(world, 10) == 11
    world.clock.advance(1000)
    assert await admit(world, 11) == 21


def holds(world: World, name: str = A) -> bool:
    return world.broker.replicator_rates.holds(world.partition, name)


@scenario
async def test_batch_that_ends_for_its_size_is_not_held_by_the_rate(world: World) -> None:
    await of_namespace(world, rate(1000, period_s=1000))
    await world.publish(5, payload=bytes(1 << 20))
    assert await admit(world, 0, bytes_max=1) < 5
    assert not holds(world)


@scenario
async def test_a_rate_holds_who_has_messages_left_that_it_does_not_let_go(world: World) -> None:
    await of_namespace(world, rate(10, period_s=1000))
    await world.publish(100)
    assert not holds(world)
    await admit(world, 0, end=5)
    assert not holds(world)
    assert await admit(world, 5) == 10
    assert holds(world)
    await of_namespace(world, rate(1000, period_s=1))
    assert not holds(world), "the limit is another one"
    assert await admit(world, 10) == 100
    assert not holds(world)
    await of_namespace(world, rate(1, period_s=1000))
    await world.publish(9)
    await admit(world, 100)
    assert holds(world)
    await of_namespace(world, None)
    assert not holds(world)


@scenario
async def test_every_replicator_has_the_rate_for_itself(world: World) -> None:
    await of_namespace(world, rate(10, period_s=1000))
    await world.publish(100)
    assert (await admit(world, 0, A), await admit(world, 5, B)) == (10, 15)
    assert (await admit(world, 10, A), await admit(world, 15, B)) == (10, 15)


@scenario
async def test_the_rate_of_consumers_is_another(world: World) -> None:
    await world.broker.namespaces.change(
        "public/default",
        lambda found: {**found, "topicDispatchRate": rate(1), "subscriptionDispatchRate": rate(1)},
    )
    await world.publish(100)
    assert await admit(world, 0) == 100


@scenario
async def test_a_topics_rate_goes_over_its_namespaces(world: World) -> None:
    await of_namespace(world, rate(10, period_s=1000))
    await of_topic(world, rate(30, period_s=1000))
    await world.publish(100)
    assert await admit(world, 0) == 30
    await of_topic(world, None)
    assert await admit(world, 30) == 40


@scenario
async def test_another_rate_counts_at_once_and_none_lets_everything_go(world: World) -> None:
    await of_topic(world, rate(10, period_s=1000))
    await world.publish(100)
    assert await admit(world, 0) == 10
    await of_topic(world, rate(20, period_s=1000))
    assert await admit(world, 10) == 30
    assert await admit(world, 30) == 30
    await of_topic(world, None)
    assert await admit(world, 30) == 100


@scenario
async def test_bytes_count_and_a_large_entry_is_paid_for_afterwards(world: World) -> None:
    await world.publish(10, payload=bytes(1_000))
    entry = await world.partition.log.entry_at(0)
    assert entry is not None
    await of_topic(world, rate(size=len(entry.payload) // 4, period_s=10))
    assert await admit(world, 0) == 1
    world.clock.advance(30)
    assert await admit(world, 1) == 1
    world.clock.advance(1)
    assert await admit(world, 1) == 2


@scenario
async def test_an_entry_goes_whole(world: World) -> None:
    await of_topic(world, rate(10, period_s=10))
    await world.publish(10, messages=8)
    assert await admit(world, 0) == 16
    world.clock.advance(6)
    assert await admit(world, 16) == 16
    world.clock.advance(1)
    assert await admit(world, 16) == 24


@scenario
async def test_the_same_batch_again_counts_once(world: World) -> None:
    await of_topic(world, rate(10, period_s=1000))
    await world.publish(100)
    assert [await admit(world, 0) for _ in range(3)] == [10, 10, 10]
    assert await admit(world, 0, end=4) == 4
    world.clock.advance(1000)
    assert await admit(world, 0) == 10, "it was granted 10 before, and asks for the same batch"
    assert await admit(world, 10) == 20


@scenario
async def test_what_the_rate_allows_during_a_batch_goes_with_the_next_one(world: World) -> None:
    await of_topic(world, rate(10))
    await world.publish(2_000)
    assert await admit(world, 0) == 10
    world.clock.advance(7)
    assert await admit(world, 10) == 80
    world.clock.advance(10 * BATCH_S_MAX)
    assert await admit(world, 80) == 80 + 10 * BATCH_S_MAX


@scenario
async def test_a_replicator_that_had_everything_begins_with_a_periods_worth(world: World) -> None:
    await of_topic(world, rate(10))
    await world.publish(10)
    assert await admit(world, 0) == 10
    world.clock.advance(30)
    await world.publish(90)
    assert await admit(world, 10) == 20


@scenario
async def test_a_limit_outlives_its_replicator_and_not_its_topic(world: World) -> None:
    await of_namespace(world, rate(10, period_s=1000))
    await world.publish(100)
    assert await admit(world, 0) == 10
    assert await admit(world, 5) == 5, "it was started anew, without its checkpoint"
    topics = world.broker.topics
    await world.broker.delete_topic(world.topic)
    await topics.create([topics.plan(NewTopic(NAME))])
    await world.publish(100)
    assert await admit(world, 0) == 10


@scenario
async def test_a_batch_ends_where_enough_was_looked_at(world: World) -> None:
    await of_topic(world, rate(1_000_000))
    await world.publish(40, payload=bytes(12_500))  # 100 KB each
    ends = [await admit(world, 0, bytes_max=1)]
    while ends[-1] < 40:
        ends.append(await admit(world, ends[-1], bytes_max=1))
    assert len(ends) == 4


@pytest.mark.parametrize("begin", [0, 60])
def test_what_retention_has_deleted_does_not_count(begin: int) -> None:
    @scenario
    async def run(world: World) -> None:
        await of_topic(world, rate(10, period_s=1000))
        await world.publish(100)
        await world.partition.log.trim(log_start=50)
        assert await admit(world, begin) == max(begin, 50) + 10

    run()


@scenario
async def test_what_compaction_has_removed_does_not_count(world: World) -> None:
    assert latest.load()
    await of_topic(world, rate(10, period_s=1000))
    object.__setattr__(world.topic.config, "compact", True)
    world.partition.log.limits.entry_count_max = 20
    now_ms = world.clock.now_ms()
    for number in range(101):
        key = b"same" if number < 100 else b"other"
        world.partition.append(kafka_batch([(key, b"%d" % number)], [now_ms]), now_ms, lambda error: None)
        await settle()
    wanted = plan(world.partition, now_ms, LONG_MAX)
    assert wanted is not None
    await world.broker.compactor.run(world.partition, wanted, now_ms)
    assert await admit(world, 0, A) == 101
    assert await admit(world, 0, B, end=50) == 50, "nothing is left of it"
