"""Quotas as requests set them and as clients feel them; codes as in real Kafka."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.messages import heartbeat
from magnetar.wire.kafka.messages import produce as produce_codec
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.protocols.kafka.conftest import record_batch
from tests.unit.protocols.kafka.test_session_life import Fixture, beat, request

Run = Callable[..., None]
PRODUCED, FETCHED, CONNECTED = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
INVALID_REQUEST = 42
EXACT, BY_DEFAULT, ANY = range(3)


def entry(entity: Sequence[tuple[str, str | None]], **limits: float | None) -> EntryData:
    return EntryData(
        [EntityData(*one) for one in entity],
        [OpData(key, 0.0 if rate is None else rate, rate is None) for key, rate in limits.items()],
    )


async def alter(client: Any, *entries: EntryData, validate_only: bool = False) -> list[int]:
    asked = AlterClientQuotasRequest(list(entries), validate_only)
    answer = await client.ask("alter_client_quotas", 1, asked)
    assert [[(e.entity_type, e.entity_name) for e in one.entity] for one in answer.entries] == [
        [(e.entity_type, e.entity_name) for e in one.entity] for one in entries
    ]
    assert all((one.error_message is None) == (one.error_code == 0) for one in answer.entries)
    return [one.error_code for one in answer.entries]


async def describe(client: Any, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = DescribeClientQuotasRequest([ComponentData(*one) for one in components], strict)
    answer = await client.ask("describe_client_quotas", 1, asked)
    if answer.error_code:
        assert answer.entries is None
        return answer.error_code
    found = [
        (
            [(e.entity_type, e.entity_name) for e in one.entity],
            {value.key: value.value for value in one.values},
        )
        for one in answer.entries
    ]
    return sorted(found, key=repr)


def test_what_is_set_is_told_and_filters_find_it(with_broker: Run) -> None:
    alice, default = [("user", "alice")], [("user", None)]
    both, client_id = [("user", "alice"), ("client-id", "one")], [("client-id", "one")]

    async def scenario(client: Any) -> None:
        assert await describe(client) == []
        changes = [entry(one, producer_byte_rate=5.0) for one in (alice, both, client_id)]
        assert await alter(client, *changes, entry([("user", None)], consumer_byte_rate=6.0)) == [0] * 4
        limit = {PRODUCED: 5.0}
        assert len(await describe(client)) == 4
        assert await describe(client, ("user", EXACT, "alice")) == [(both, limit), (alice, limit)]
        assert await describe(client, ("user", EXACT, "alice"), strict=True) == [(alice, limit)]
        assert await describe(client, ("user", BY_DEFAULT, None)) == [(default, {FETCHED: 6.0})]
        assert len(await describe(client, ("user", ANY, None))) == 3
        assert await describe(client, ("client-id", ANY, None), ("user", ANY, None)) == [(both, limit)]
        assert await describe(client, ("user", EXACT, "bob")) == []
        assert await alter(client, entry(alice, producer_byte_rate=None, consumer_byte_rate=9.0)) == [0]
        assert await describe(client, ("user", EXACT, "alice"), strict=True) == [(alice, {FETCHED: 9.0})]
        assert await alter(client, entry(alice, consumer_byte_rate=None)) == [0]
        assert await describe(client, ("user", EXACT, "alice"), strict=True) == []

    with_broker(scenario)


def test_addresses_have_limits_of_their_own(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        first, default = [("ip", "127.0.0.1")], [("ip", None)]
        assert await alter(client, entry(first, connection_creation_rate=5.0)) == [0]
        assert await alter(client, entry(default, connection_creation_rate=6.0)) == [0]
        assert await alter(client, entry([("ip", "0:0:0:0::1")], connection_creation_rate=7.0)) == [0]
        found = [
            (entity[0][1], limits[CONNECTED]) for entity, limits in await describe(client, ("ip", ANY, None))
        ]
        assert sorted(found, key=repr) == [("127.0.0.1", 5.0), ("::1", 7.0), (None, 6.0)]
        for name in ("::1", "0::1"):
            assert len(await describe(client, ("ip", EXACT, name), strict=True)) == 1
        assert await describe(client, ("user", ANY, None)) == []
        rate = client.broker.client_quotas.connection_rate
        assert (rate("127.0.0.1"), rate("::1"), rate("10.0.0.1")) == (5.0, 7.0, 6.0)
        assert await alter(client, entry(default, connection_creation_rate=None)) == [0]
        assert rate("10.0.0.1") is None

    with_broker(scenario)


def test_nothing_is_changed_where_only_a_check_is_asked_for(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        good = entry([("user", "alice")], producer_byte_rate=5.0)
        bad = entry([("user", "bob")], producer_byte_rate=-5.0)
        assert await alter(client, good, bad, validate_only=True) == [0, INVALID_REQUEST]
        assert await describe(client) == []
        assert await alter(client, good, bad) == [0, INVALID_REQUEST]
        assert [entity for entity, _ in await describe(client)] == [[("user", "alice")]]

    with_broker(scenario)


@pytest.mark.parametrize(
    "bad",
    [
        entry([], producer_byte_rate=1.0),
        entry([("group", "g")], producer_byte_rate=1.0),
        entry([("ip", "127.0.0.1")], producer_byte_rate=1.0),
        entry([("ip", "127.0.0.1"), ("user", "a")], connection_creation_rate=1.0),
        entry([("ip", "localhost")], connection_creation_rate=1.0),
        entry([("ip", "127.0.0.1")], connection_creation_rate=1.5),
        entry([("ip", "127.0.0.1")], connection_creation_rate=2147483648.0),
        entry([("user", "a")], connection_creation_rate=1.0),
        entry([("user", "a"), ("user", "b")], producer_byte_rate=1.0),
        entry([("user", "a" * 1025)], producer_byte_rate=1.0),
        entry([("user", "a")], no_such_rate=1.0),
        entry([("user", "a")], request_percentage=0.0),
        entry([("user", "a")], producer_byte_rate=0.0),
        entry([("user", "a")], producer_byte_rate=-1.0),
        entry([("user", "a")], producer_byte_rate=1.5),
        entry([("user", "a")], producer_byte_rate=1e300),
        entry([("user", "a")], producer_byte_rate=float("inf")),
        entry([("user", "a")], producer_byte_rate=float("nan")),
    ],
)
def test_bad_changes(with_broker: Run, bad: EntryData) -> None:
    async def scenario(client: Any) -> None:
        assert await alter(client, bad) == [INVALID_REQUEST]
        assert await describe(client) == []

    with_broker(scenario)


def test_an_entity_is_changed_once_in_a_request(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        changes = [entry([("user", "alice")], producer_byte_rate=rate) for rate in (1.0, 2.0)]
        assert await alter(client, *changes) == [0, INVALID_REQUEST]
        assert await describe(client) == [([("user", "alice")], {PRODUCED: 1.0})]

    with_broker(scenario)


@pytest.mark.parametrize(
    "bad",
    [
        [("group", EXACT, "g")],
        [("user", EXACT, "a"), ("user", ANY, None)],
        [("user", EXACT, "a"), ("ip", ANY, None)],
        [("user", EXACT, None)],
        [("user", BY_DEFAULT, "a")],
        [("user", ANY, "a")],
        [("user", 3, None)],
    ],
)
def test_bad_filters(with_broker: Run, bad: list[tuple[str, int, str | None]]) -> None:
    async def scenario(client: Any) -> None:
        assert await describe(client, *bad) == INVALID_REQUEST

    with_broker(scenario)


# --- what clients feel -----------------------------------------------------------------------------------------------

BATCH = bytes(record_batch(50, 0))


def produce(acks: int = -1) -> ProduceRequest:
    data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, memoryview(BATCH))])]
    return ProduceRequest(None, acks, 1000, data)


def fetch(session_id: int = 0, epoch: int = -1) -> FetchRequest:
    named = [FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[] if session_id else named,
    )


async def topic(client: Any) -> None:
    await client.ask("create_topics", 7, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000))


def test_a_producer_is_told_to_wait_and_what_it_sent_is_kept(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        assert (await client.ask("produce", 9, produce())).throttle_time_ms == 0
        # Ten seconds' worth is less than one batch.
        rate = len(BATCH) // 20
        assert await alter(client, entry([("client-id", "test")], producer_byte_rate=float(rate))) == [0]
        answer = await client.ask("produce", 9, produce())
        assert 9_000 < answer.throttle_time_ms < 11_000
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert (await client.ask("produce", 9, produce())).throttle_time_ms > 28_000
        assert await alter(client, entry([("client-id", "test")], producer_byte_rate=None)) == [0]
        assert (await client.ask("produce", 9, produce())).throttle_time_ms == 0
        found = await client.ask("fetch", 12, fetch())
        assert len(bytes(found.responses[0].partitions[0].records)) == 4 * len(BATCH)

    with_broker(scenario)


def test_a_consumer_gets_nothing_until_it_may_have_it(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        for _ in range(4):
            await client.ask("produce", 9, produce())
        # Two batches fit into ten seconds; what is left then is enough to be let through once more.
        rate = float(len(BATCH) // 5 + 1)
        assert await alter(client, entry([("user", "ANONYMOUS")], consumer_byte_rate=rate)) == [0]
        first = await client.ask("fetch", 12, fetch(epoch=0))
        assert first.throttle_time_ms == 0
        assert first.session_id
        assert len(bytes(first.responses[0].partitions[0].records)) == 2 * len(BATCH)
        again = await client.ask("fetch", 12, fetch(first.session_id, 1))
        assert len(bytes(again.responses[0].partitions[0].records)) == 2 * len(BATCH)
        second = await client.ask("fetch", 12, fetch(first.session_id, 2))
        assert 0 < second.throttle_time_ms < 11_000
        assert (second.responses, second.session_id, second.error_code) == ([], first.session_id, 0)
        # What it did not get is news all the same.
        assert await alter(client, entry([("user", "ANONYMOUS")], consumer_byte_rate=None)) == [0]
        third = await client.ask("fetch", 12, fetch(first.session_id, 3))
        assert third.throttle_time_ms == 0
        assert len(bytes(third.responses[0].partitions[0].records)) == 4 * len(BATCH)

    with_broker(scenario)


def test_a_session_that_begins_with_nothing_does_not_go_on(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        await client.ask("produce", 9, produce())
        assert await alter(client, entry([("user", "ANONYMOUS")], consumer_byte_rate=1.0)) == [0]
        assert (
            await client.ask("fetch", 12, fetch())
        ).throttle_time_ms == 0  # one batch comes, however large
        answer = await client.ask("fetch", 12, fetch(epoch=0))
        assert answer.throttle_time_ms > 0
        assert answer.session_id == 0
        assert len(client.service.fetch_sessions) == 0

    with_broker(scenario)


def test_a_client_without_a_limit_has_none(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        limits = [
            entry([("user", "bob")], producer_byte_rate=1.0, consumer_byte_rate=1.0),
            entry([("client-id", "other")], producer_byte_rate=1.0, consumer_byte_rate=1.0),
        ]
        assert await alter(client, *limits) == [0, 0]
        for _ in range(3):
            assert (await client.ask("produce", 9, produce())).throttle_time_ms == 0
            assert (await client.ask("fetch", 12, fetch())).throttle_time_ms == 0

    with_broker(scenario)


def test_thousands_are_changed_and_told_while_others_have_their_turn(with_broker: Run) -> None:
    # Twenty thousand held the event loop for a tenth of a second.
    async def scenario(client: Any) -> None:
        others = 0

        async def be_another() -> None:
            nonlocal others
            while True:
                await asyncio.sleep(0)
                others += 1

        another = asyncio.create_task(be_another())
        many = [entry([("client-id", str(number))], producer_byte_rate=1.0) for number in range(5_000)]
        assert set(await alter(client, *many, validate_only=True)) == {0}
        assert others > len(many) // 1_000
        assert set(await alter(client, *many)) == {0}
        others = 0
        answer = await client.ask("describe_client_quotas", 1, DescribeClientQuotasRequest([], False))
        assert len(answer.entries) == len(many)
        assert others > len(many) // 200
        another.cancel()

    with_broker(scenario)


def test_limits_are_looked_up_once_for_a_connection(with_broker: Run) -> None:
    # Clients alternate between the versions of their APIs, and between frames that are small and large: each request
    # had cost ten microseconds.
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        api, contexts = one.service.apis[heartbeat.API_KEY], []

        def handle(context: Any, asked: Any) -> Any:
            contexts.append(context)
            return one.handle(context, asked)

        one.service.apis[heartbeat.API_KEY] = replace(api, handle=handle)
        for version in (0, 4, 0):
            one.feed(request(heartbeat, version, HeartbeatRequest("g", 0, "m")))
        assert [context.api_version for context in contexts] == [0, 4, 0]
        first, *others = [context.meter for context in contexts]
        assert all(meter is first for meter in others)
        assert first.measures("ANONYMOUS", "test")
        one.session.closed()

    with_broker(scenario)


# --- the connection --------------------------------------------------------------------------------------------------


def fixture(client: Any) -> tuple[Fixture, FakeClock]:
    clock = FakeClock()
    client.service.cases = replace(client.service.cases, clock=clock)
    return Fixture(client), clock


def test_what_comes_after_an_answer_that_says_wait_waits(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = fixture(client)
        one.feed(beat(1))
        one.feed(beat(2))
        one.waiting[1].resolve(HeartbeatResponse(throttle_time_ms=2_000))
        one.waiting[0].resolve(HeartbeatResponse(throttle_time_ms=5_000))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert one.peer.answered() == [1, 2], "answers are not held back"
        assert not one.peer.reading
        one.feed(beat(3))  # was on its way
        clock.advance(4.9)
        assert len(one.waiting) == 2
        clock.advance(0.2)
        assert len(one.waiting) == 3
        assert one.peer.reading
        one.session.closed()

    with_broker(scenario)


def test_a_client_that_hangs_up_meanwhile_is_missed(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = fixture(client)
        one.feed(beat(1))
        one.waiting[0].resolve(HeartbeatResponse(throttle_time_ms=1 << 30))
        one.session.look_for_hang_up()
        assert not one.peer.closed
        one.peer.hung_up = True
        one.session.look_for_hang_up()
        assert one.peer.closed
        one.session.closed()
        clock.advance(1 << 21)  # its timer does not ring

    with_broker(scenario)


def test_a_producer_without_answers_has_to_wait_all_the_same(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        assert await alter(client, entry([("client-id", "test")], producer_byte_rate=1.0)) == [0]
        one, _ = fixture(client)
        one.feed(request(produce_codec, 9, produce(acks=0)))
        assert not one.peer.reading
        assert one.peer.answered() == []
        one.session.closed()

    with_broker(scenario)
