"""A topic's dispatch rate holds for fetches: what may not go out yet is waited for, as what has not come."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.broker.log.partition import Partition
from magnetar.broker.quotas.dispatch_limit import DispatchLimit
from magnetar.broker.quotas.model import Rate
from magnetar.broker.topics.model import NewTopic
from magnetar.ledger.entry import Entry
from magnetar.protocols.kafka.fetch_pace import FetchPace
from magnetar.protocols.kafka.registry import Deferred
from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.unit.protocols.kafka.test_fetch_waiting import handle, turns

Run = Callable[..., None]


def asked(offset: int, *, max_wait_ms: int = 500, others: tuple[str, ...] = ()) -> FetchRequest:
    def of(name: str, at: int) -> FetchTopic:
        return FetchTopic(name, partitions=[FetchPartition(0, fetch_offset=at, partition_max_bytes=1 << 20)])

    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[of("limited", offset), *(of(name, 0) for name in others)],
    )


def records(answer: FetchResponse) -> dict[str, int]:
    """Batches by topic."""
    return {
        str(one.topic): len(row.records) for one in answer.responses for row in one.partitions if row.records
    }


async def topic(client: Any, name: str, batches: int) -> Partition:
    """One with so many batches of one record."""
    broker = client.broker
    full = broker.kafka_topics.name(name)
    await broker.topics.create([broker.topics.plan(NewTopic(full, 1))])
    partition: Partition = broker.topics.get(full).partition(0)
    for _ in range(batches):
        await client.append(partition, 1)
    return partition


async def limit(client: Any, messages: int, size: int = 0) -> None:
    rate = {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size,
        "ratePeriodInSecond": 1,
    }
    name = client.broker.kafka_topics.name("limited")
    await client.broker.namespaces.change_topic(name, lambda found: {**found, "topicDispatchRate": rate})


def clocked(client: Any) -> FakeClock:
    """Of the rates, and of how long fetches wait."""
    clock = FakeClock()
    client.broker.clock = client.broker._limits._clock = clock
    client.broker.cases = replace(client.broker.cases, clock=clock)
    client.service.cases = client.broker.cases
    return clock


async def answered(deferred: Any) -> FetchResponse:
    if isinstance(deferred, Deferred):
        resolved: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        deferred.attach(resolved.set_result)
        deferred = await resolved
    if asyncio.iscoroutine(deferred):
        deferred = await deferred
    assert isinstance(deferred, FetchResponse)
    return deferred


def test_a_fetch_gets_what_the_rate_allows_and_waits_for_the_rest(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        clock = clocked(client)
        await topic(client, "limited", 40)
        await limit(client, 10)
        assert records(handle(client, asked(0))) == {"limited": 10}
        assert records(handle(client, asked(10))) == {"limited": 1}, "the debt is paid afterwards"
        waiting = handle(client, asked(11))
        assert isinstance(waiting, Deferred)
        await turns()
        assert not waiting.resolved
        clock.advance(0.05)
        assert not waiting.resolved
        clock.advance(0.1)
        assert records(await answered(waiting)) == {"limited": 1}
        assert not client.service.fetches_waiting
        held = handle(client, asked(12, max_wait_ms=20))
        clock.advance(0.021)
        answer = await answered(held)
        assert (records(answer), answer.throttle_time_ms) == ({}, 0)
        assert answer.responses[0].partitions[0].high_watermark == 40
        partition = client.broker.topics.get(client.broker.kafka_topics.name("limited")).partition(0)
        clock.advance(1)
        assert partition.dispatch_limit._timer is None, "a turn that is not taken is over"

    with_broker(scenario)


def test_it_holds_on_average_over_the_clients(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        clock = clocked(client)
        await topic(client, "limited", 120)
        await limit(client, 10)
        offset, began_s = 0, clock.monotonic()
        while offset < 120:
            answer = handle(client, asked(offset))
            for _ in range(10):
                if not isinstance(answer, Deferred) or answer.resolved:
                    break
                clock.advance(0.05)
                await turns()
            offset += records(await answered(answer)).get("limited", 0)
            passed_s = clock.monotonic() - began_s
            assert offset <= 10 * (passed_s + 1) + 1
        assert clock.monotonic() - began_s < 12

    with_broker(scenario)


def test_other_partitions_of_the_fetch_are_not_held_up(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        clock = clocked(client)
        await topic(client, "limited", 40)
        free = await topic(client, "free", 0)
        await limit(client, 1)
        assert records(handle(client, asked(0))) == {"limited": 1}
        assert records(handle(client, asked(1))) == {"limited": 1}
        waiting = handle(client, asked(2, others=("free",)))
        assert isinstance(waiting, Deferred)
        await client.append(free, 3)
        await turns()
        assert records(await answered(waiting)) == {"free": 1}
        assert records(handle(client, asked(2, others=("free",)))) == {"free": 1}
        clock.advance(1)

    with_broker(scenario)


@pytest.mark.parametrize("others", [(), ("free",)])
def test_a_fetch_that_does_not_wait_has_its_turn_beside_readers_that_do(
    with_broker: Run, others: tuple[str, ...]
) -> None:
    async def scenario(client: Any) -> None:
        clock = clocked(client)
        partition = await topic(client, "limited", 40)
        await topic(client, "free", 1)
        await limit(client, 10)
        at = partition.dispatch_limit
        assert isinstance(at, DispatchLimit)
        given = dict.fromkeys(["other", "another"], 0)

        def reads(name: str) -> None:
            """One that always wants more."""
            at.used(1, 1)
            given[name] += 1
            at.wait(name, partial(reads, name))

        at.used(11, 0)
        for name in given:
            at.wait(name, partial(reads, name))
        offset = 0
        for _ in range(1_000):
            clock.advance(0.005)
            answer = handle(client, asked(offset, max_wait_ms=500 if others else 0, others=others))
            offset += records(await answered(answer)).get("limited", 0)
        assert 15 <= offset <= 25, "a third of 50"
        assert min(given.values()) >= 10
        for name in given:
            at.leave(name)
        clock.advance(1)
        assert at._timer is None

    with_broker(scenario)


def test_bytes_hold_and_a_rate_that_is_lifted_answers_at_once(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        clock = clocked(client)
        partition = await topic(client, "limited", 40)
        cached = partition.log.read_cached(0, 1, 40)
        assert cached
        size = cached[0].payload.nbytes
        await limit(client, 0, 3 * size)
        assert records(handle(client, asked(0))) == {"limited": 3}
        assert records(handle(client, asked(3))) == {"limited": 1}
        waiting = handle(client, asked(4, max_wait_ms=60_000))
        clock.advance(0.1)
        assert not waiting.resolved
        await limit(client, 0)
        assert records(await answered(waiting)) == {"limited": 36}

    with_broker(scenario)


def test_a_fetch_reads_in_its_turn_what_is_not_cached(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It was answered with nothing, and by its next fetch, if that was 20 ms away, had lost its turn: each time.
    async def scenario(client: Any) -> None:
        clock = clocked(client)
        partition = await topic(client, "limited", 40)
        await limit(client, 10)
        assert records(handle(client, asked(0))) == {"limited": 10}
        assert records(handle(client, asked(10))) == {"limited": 1}
        monkeypatch.setattr(type(partition.log), "read_cached", lambda *_, **__: None)
        waiting = handle(client, asked(11))
        assert isinstance(waiting, Deferred)
        clock.advance(0.15)
        assert records(await answered(waiting)) == {"limited": 1}

    with_broker(scenario)


def test_a_topic_that_is_deleted_answers_fetches_that_wait_for_their_turn(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        clocked(client)
        partition = await topic(client, "limited", 40)
        await limit(client, 1)
        handle(client, asked(0))
        handle(client, asked(1))
        waiting = handle(client, asked(2, max_wait_ms=60_000))
        assert isinstance(waiting, Deferred)
        await client.broker.delete_topic(partition.topic)
        assert waiting.resolved
        answer = await answered(waiting)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_broker(scenario)


@pytest.mark.parametrize("high_watermark", [10, 11])
def test_a_fetch_that_has_read_all_ends_its_turn(high_watermark: int) -> None:
    clock = FakeClock()
    turns_of = DispatchLimit(Rate(10, 0), clock)
    turns_of.used(11, 0)
    log = SimpleNamespace(high_watermark=high_watermark)
    partition = cast("Any", SimpleNamespace(dispatch_limit=turns_of, log=log))
    held = FetchPace(1)
    assert held.holds(partition)
    held.wait(lambda: None)
    clock.advance(0.11)
    admitted = FetchPace(1)
    assert not admitted.holds(partition)
    admitted.gives(partition, [Entry(9, 9, 0, memoryview(b""))], 0)
    admitted.sent()
    clock.advance(0.001)
    turns_of.used(-10, 0)
    assert turns_of.admits(2) == (high_watermark == 10)


def test_partitions_that_wait_are_not_searched_for_each_other() -> None:
    # Each was looked for in a list of all: ten thousand held the event loop for most of a second.
    class Turns:
        compared = 0

        def admits(self, reader: object) -> bool:
            return False

        def __eq__(self, other: object) -> bool:
            Turns.compared += 1
            return self is other

        __hash__ = object.__hash__

    pace = FetchPace(1)
    partitions = [SimpleNamespace(dispatch_limit=Turns()) for _ in range(1_000)]
    assert all(pace.holds(cast("Any", one)) for one in partitions)
    assert all(pace.is_held(cast("Any", one)) for one in partitions)
    assert not pace.is_held(cast("Any", SimpleNamespace(dispatch_limit=Turns())))
    assert Turns.compared < 100


def test_a_connection_that_goes_leaves_its_place(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        clocked(client)
        partition = await topic(client, "limited", 40)
        await limit(client, 1)
        handle(client, asked(0))
        handle(client, asked(1))
        waiting = handle(client, asked(2))
        assert partition.own_dispatch_limit is not None
        assert partition.own_dispatch_limit._waiting
        assert waiting.abandon is not None
        waiting.abandon()
        assert not partition.own_dispatch_limit._waiting

    with_broker(scenario)
