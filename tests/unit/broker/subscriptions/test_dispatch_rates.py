"""Dispatch rates of topics and subscriptions: what goes out holds to them, and in the end everything does."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.quotas import rate_limit
from magnetar.broker.quotas.dispatch_limit import TURN_S
from magnetar.broker.subscriptions.model import (
    ConsumerSpec,
    Delivery,
    InitialPosition,
    SubscribeRequest,
    SubscriptionType,
)
from magnetar.broker.topics.model import NewTopic

from .driver import NAME, Client, World, scenario, settle

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
KINDS = [EXCLUSIVE, SubscriptionType.FAILOVER, SHARED, SubscriptionType.KEY_SHARED]
TOPIC_RATE, SUBSCRIPTION_RATE = "topicDispatchRate", "subscriptionDispatchRate"


def rate(messages: int = -1, size: int = -1, period_s: int = 1) -> dict[str, Any]:
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": period_s,
        "relativeToPublishRate": False,
    }


async def policy(world: World, key: str, value: Any) -> None:
    """Of the namespace."""
    await world.broker.namespaces.change("public/default", lambda found: {**found, key: value})
    await settle()


async def passes(world: World, seconds: float, step_s: float = TURN_S / 2) -> None:
    """Time in small steps, with everything happening that can happen in each."""
    for _ in range(round(seconds / step_s)):
        await world.advance(step_s)


@pytest.mark.parametrize("key", [TOPIC_RATE, SUBSCRIPTION_RATE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_holds_and_everything_comes_in_order(kind: SubscriptionType, key: str) -> None:
    @scenario
    async def run(world: World) -> None:
        await policy(world, key, rate(10))
        await world.publish(100)
        client = await world.sub(kind=kind)
        assert 10 <= len(client.got) <= 11
        await passes(world, 4)
        assert 48 <= len(client.got) <= 51
        await passes(world, 6)
        assert client.entries == list(range(100))

    run()


@scenario
async def test_a_consumer_that_has_caught_up_is_held_back_as_well(world: World) -> None:
    await policy(world, SUBSCRIPTION_RATE, rate(2))
    client = await world.sub()
    await world.publish(10)
    assert 2 <= len(client.got) <= 3
    await passes(world, 5)
    assert len(client.got) == 10


@scenario
async def test_bytes_count_and_a_large_entry_is_paid_for_afterwards(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(size=1_000))
    await world.publish(3, payload=bytes(1_000))  # eight times that each
    client = await world.sub()
    assert len(client.got) == 1
    await passes(world, 6)
    assert len(client.got) == 1
    await passes(world, 3)
    assert len(client.got) == 2
    await passes(world, 9)
    assert len(client.got) == 3


@scenario
async def test_messages_of_batches_count_one_by_one(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(10))
    await world.publish(3, messages=50)
    client = await world.sub()
    assert len(client.got) == 1
    await passes(world, 3.9)
    assert len(client.got) == 1
    await passes(world, 0.3)
    assert len(client.got) == 2


@scenario
async def test_a_rate_for_a_longer_period_may_be_had_at_once(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(10, period_s=60))
    await world.publish(20)
    client = await world.sub()
    assert 10 <= len(client.got) <= 11
    await world.advance(10)
    assert len(client.got) <= 12


@scenario
async def test_subscriptions_of_a_partition_share_its_rate(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(20))
    await world.publish(400)
    clients = [await world.sub(name) for name in "abcd"]
    await passes(world, 20)
    counts = [len(client.got) for client in clients]
    assert 400 <= sum(counts) <= 430
    assert min(counts) >= 80, counts  # of a hundred each; the first one began alone


@scenario
async def test_each_subscription_has_its_own_rate(world: World) -> None:
    await policy(world, SUBSCRIPTION_RATE, rate(5))
    await world.publish(100)
    clients = [await world.sub(name) for name in "ab"]
    await passes(world, 10)
    assert all(53 <= len(client.got) <= 56 for client in clients)


@scenario
async def test_the_closer_of_two_rates_holds(world: World) -> None:
    await policy(world, SUBSCRIPTION_RATE, rate(5))
    await policy(world, TOPIC_RATE, rate(8))
    await world.publish(200)
    clients = [await world.sub(name) for name in "ab"]
    await passes(world, 20)
    counts = [len(client.got) for client in clients]
    assert 150 <= sum(counts) <= 172
    assert max(counts) <= 106
    assert min(counts) >= 60


@scenario
async def test_a_topics_rate_goes_over_its_namespaces(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(1))
    await world.publish(50)
    client = await world.sub()
    assert len(client.got) <= 2
    await world.broker.namespaces.change_topic(NAME, lambda found: {**found, TOPIC_RATE: rate()})
    await settle()
    assert len(client.got) == 50


@pytest.mark.parametrize("key", [TOPIC_RATE, SUBSCRIPTION_RATE])
@pytest.mark.parametrize("after", [None, rate(-1, 0), rate(1_000)])
def test_a_rate_that_is_lifted_or_raised_holds_no_longer(key: str, after: dict[str, Any] | None) -> None:
    @scenario
    async def run(world: World) -> None:
        await policy(world, key, rate(1, period_s=1_000))
        await world.publish(100)
        client = await world.sub()
        await world.advance(10)
        assert len(client.got) <= 2
        await policy(world, key, after)
        assert len(client.got) == 100

    run()


@scenario
async def test_the_same_rates_set_again_forget_nothing(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(1))
    await policy(world, SUBSCRIPTION_RATE, rate(1))
    await world.publish(10)
    client = await world.sub()
    count = len(client.got)
    for ttl in range(5, 9):
        await policy(world, "message_ttl_in_seconds", ttl)
    assert len(client.got) == count


@scenario
async def test_a_subscription_has_a_rate_by_its_name(world: World) -> None:
    await policy(world, SUBSCRIPTION_RATE, rate(1))
    own = {"fast": {"dispatchRate": rate(20)}, "free": {"dispatchRate": rate()}}
    await world.broker.namespaces.change_topic(NAME, lambda found: {**found, "subscriptionPolicies": own})
    await world.publish(60)
    clients = [await world.sub(name) for name in ("other", "fast", "free")]
    assert [len(client.got) for client in clients] == [2, 21, 60]
    await world.broker.namespaces.change_topic(NAME, lambda _: {})
    await world.publish(3)
    assert [len(client.got) for client in clients][2] <= 62


@scenario
async def test_a_rate_that_comes_later_holds_subscriptions_that_are_there(world: World) -> None:
    client = await world.sub()
    await world.publish(5)
    assert len(client.got) == 5
    await policy(world, SUBSCRIPTION_RATE, rate(1))
    await policy(world, TOPIC_RATE, rate(1))
    await world.publish(20)
    assert 5 < len(client.got) <= 7


@scenario
async def test_a_consumer_that_comes_back_finds_what_its_subscription_owes(world: World) -> None:
    await policy(world, SUBSCRIPTION_RATE, rate(1))
    await world.publish(20, messages=10)
    got = 0
    for _ in range(10):
        client = await world.sub()
        got += len(client.got)
        for one in client.positions:
            client.ack(one)
        await client.leave()
        await settle()
    assert got == 1


@scenario
async def test_a_topic_that_is_made_again_owes_nothing(world: World) -> None:
    await policy(world, SUBSCRIPTION_RATE, rate(1))
    await world.publish(2, messages=500)
    assert len((await world.sub()).got) == 1
    await world.broker.delete_topic(world.topic)
    await world.broker.topics.create([world.broker.topics.plan(NewTopic(NAME))])
    await world.publish()
    assert len((await world.sub()).got) == 1


@pytest.mark.parametrize("own", [None, rate(20)])
def test_many_that_want_less_than_the_rate_catch_up_after_a_burst(own: dict[str, Any] | None) -> None:
    @scenario
    async def run(world: World) -> None:
        await policy(world, SUBSCRIPTION_RATE, own)
        await policy(world, TOPIC_RATE, rate(400))
        clients = [await world.sub(f"s{number}") for number in range(20)]
        await world.publish(21)
        published = 21
        for _ in range(20):  # for two seconds, at half the rate
            await world.publish()
            published += 1
            await passes(world, 0.1, 0.002)
        assert max(published - len(client.got) for client in clients) <= 1

    run()


def test_what_is_kept_of_subscriptions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "KEPT_MAX", 2)

    @scenario
    async def run(world: World) -> None:
        await policy(world, SUBSCRIPTION_RATE, rate(1))
        for name in "abcd":
            await (await world.sub(name)).leave()
        log = world.partition.log.name
        assert list(world.broker.subscriptions._limits._own._kept) == [(log, "c"), (log, "d")]

    run()


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.KEY_SHARED])
def test_what_is_delivered_again_counts_and_waits(kind: SubscriptionType) -> None:
    @scenario
    async def run(world: World) -> None:
        await world.publish(100)
        client = await world.sub(kind=kind)
        assert len(client.taken()) == 100
        await policy(world, TOPIC_RATE, rate(10))
        client.flow(1_000)
        client.nack()
        await settle()
        assert 10 <= len(client.got) <= 11
        await passes(world, 10)
        assert sorted(client.taken()) == list(range(100))

    run()


@scenario
async def test_consumers_of_a_subscription_take_turns_with_what_comes_again(world: World) -> None:
    clients = [await world.sub(kind=SHARED, consumer=name) for name in "ab"]
    await world.publish(40)
    assert sum(len(client.taken()) for client in clients) == 40
    await policy(world, TOPIC_RATE, rate(4))
    for client in clients:
        client.nack()
    await passes(world, 5)
    assert all(len(client.got) >= 5 for client in clients), [len(client.got) for client in clients]
    await passes(world, 10)
    assert sum(len(client.got) for client in clients) == 40


@scenario
async def test_delayed_messages_that_are_due_at_once_wait_as_well(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(10))
    await passes(world, 1)
    at_ms = world.clock.now_ms() + 60_000
    client = await world.sub(kind=SHARED)
    await world.publish(50, deliver_at_time=at_ms)
    assert not client.got
    await world.advance(60)
    assert 10 <= len(client.got) <= 12
    await passes(world, 5)
    assert len(client.got) == 50


@scenario
async def test_what_was_acknowledged_while_it_waited_does_not_come(world: World) -> None:
    await world.publish(10)
    client = await world.sub(kind=SHARED)
    first = client.positions
    client.taken()
    await policy(world, TOPIC_RATE, rate(1, period_s=100))
    client.nack()
    await settle()
    assert len(client.got) <= 2
    client.ack(*first)
    await policy(world, TOPIC_RATE, None)
    assert len(client.got) <= 2
    client.flow(100)
    await world.publish(3)
    assert client.entries[-3:] == [10, 11, 12]


@scenario
async def test_seeks_and_leaving_while_it_waits(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(5))
    await world.publish(50)
    client = await world.sub()
    other = await world.sub("other")
    await world.seek(client, await world.position_at(40))
    assert client.is_closed
    client = await world.sub()
    await other.leave()
    await passes(world, 5)
    assert client.entries == list(range(40, 50))
    limit = world.partition.own_dispatch_limit
    assert limit is not None
    await client.leave()
    assert not limit._waiting
    await world.advance(1)
    assert limit._timer is None


@scenario
async def test_a_topic_that_is_deleted_leaves_no_timer(world: World) -> None:
    await policy(world, TOPIC_RATE, rate(1))
    await world.publish(50)
    client = await world.sub()
    limit = world.partition.own_dispatch_limit
    assert limit is not None
    assert limit._waiting
    await world.broker.delete_topic(world.topic)
    assert client.is_closed
    assert not limit._waiting
    count = len(client.got)
    await world.advance(100)
    assert len(client.got) == count


def test_what_is_not_cached_comes_as_fast() -> None:
    async def main() -> None:
        world = await World(entry_cache_bytes=1 << 12).start()
        await policy(world, TOPIC_RATE, rate(20))
        await world.publish(200, payload=bytes(500))
        clients = [await world.sub(name) for name in "ab"]
        await passes(world, 25)
        assert [client.entries for client in clients] == [list(range(200))] * 2
        await world.stop()

    asyncio.run(main())


@scenario
async def test_a_subscription_without_rates_asks_no_limit(world: World) -> None:
    await world.publish(3)
    await world.sub()
    subscription = world.subscription()
    assert subscription is not None
    assert subscription.pace.limits == ()
    assert world.partition.dispatch_limit is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 30)),
        st.tuples(st.just("flow"), st.integers(1, 60)),
        st.tuples(st.just("nack"), st.integers(0, 1)),
        st.tuples(st.just("ack"), st.integers(0, 1)),
        st.tuples(st.just("full"), st.integers(0, 1)),
        st.tuples(st.just("pass"), st.integers(1, 40)),
        st.tuples(st.just("leave"), st.integers(0, 1)),
    ),
    max_size=25,
)
RATE = 10


class Counted(Client):
    """Notes when each entry came."""

    times_s: list[float]

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        super().deliver(deliveries)
        self.times_s += [self.world.clock.monotonic()] * len(deliveries)


class History:
    """Consumers of one subscription, at most one where it is an Exclusive one."""

    def __init__(self, world: World, kind: SubscriptionType) -> None:
        self.world = world
        self.kind = kind
        self.times_s: list[float] = []
        self.seen: set[int] = set()
        self.clients: dict[int, Client] = {}

    async def client(self, number: int) -> Client:
        number = 0 if self.kind is EXCLUSIVE else number
        if number not in self.clients:
            one = Counted(self.world, f"c{number}")
            one.times_s = self.times_s
            spec = ConsumerSpec(one.name, self.kind)
            wanted = SubscribeRequest("s", spec, initial_position=InitialPosition.EARLIEST)
            one.member = await self.world.broker.subscriptions.subscribe(self.world.partition, wanted, one)
            one.flow(20)
            self.clients[number] = one
        return self.clients[number]

    async def leave(self, one: Client) -> None:
        self.seen |= set(one.entries)
        await one.leave()
        self.clients = {number: other for number, other in self.clients.items() if other is not one}


@given(st.sampled_from([EXCLUSIVE, SHARED]), st.sampled_from([TOPIC_RATE, SUBSCRIPTION_RATE]), STEPS)
def test_any_history_holds_to_the_rate_and_loses_nothing(
    kind: SubscriptionType, key: str, steps: list[tuple[str, int]]
) -> None:
    @scenario
    async def run(world: World) -> None:
        await policy(world, key, rate(RATE))
        history = History(world, kind)
        published = 0
        for what, number in steps:
            if what == "publish":
                await world.publish(number)
                published += number
            elif what == "pass":
                await world.advance(number / 10)
            else:
                one = await history.client(number % 2)
                if what == "flow":
                    one.flow(number)
                elif what == "nack":
                    one.nack()
                elif what == "ack" and (found := one.ack(*one.positions)) is not None:
                    await found
                elif what == "full":
                    one.writable(not one.is_writable)
                elif what == "leave":
                    await history.leave(one)
            await settle()
        await history.client(0)
        for one in history.clients.values():
            one.writable(True)
            one.flow(100_000)
        await settle()
        await passes(world, 5 + 3 * published / RATE, 0.05)
        for one in list(history.clients.values()):
            await history.leave(one)
        assert history.seen == set(range(published)), "nothing waits for ever"
        for count, at_s in enumerate(history.times_s, 1):
            # What was read and had no permits yet goes out with what comes again: a read more.
            assert count <= RATE * (at_s + 2) + 2

    run()
