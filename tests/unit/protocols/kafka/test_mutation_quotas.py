"""The quota of partitions that are made and deleted, as requests of every version meet it (KIP-599)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.unit.protocols.kafka.test_quotas import alter, describe, entry

Run = Callable[..., None]
Ask = Callable[[Any, int, str], Awaitable[tuple[int, int]]]
CLIENT = [("client-id", "test")]
# In ten hours one partition comes free: what is left does not grow while a test runs.
RATE = 1 / 36_000


async def limit(client: Any, rate: float | None = RATE) -> None:
    assert await alter(client, entry(CLIENT, controller_mutation_rate=rate)) == [0]


async def create(
    client: Any, version: int, *names: str, partitions: int = 1, validate_only: bool = False
) -> Any:
    topics = [CreatableTopic(name, partitions, 1) for name in names]
    return await client.ask("create_topics", version, CreateTopicsRequest(topics, 1000, validate_only))


async def delete(client: Any, version: int, *names: str) -> Any:
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in names], list(names), 1000)
    if version < 6:
        request.topics = []
    return await client.ask("delete_topics", version, request)


async def grow(client: Any, version: int, count: int, *names: str, validate_only: bool = False) -> Any:
    topics = [CreatePartitionsTopic(name, count, None) for name in names]
    return await client.ask(
        "create_partitions", version, CreatePartitionsRequest(topics, 1000, validate_only)
    )


async def create_one(client: Any, version: int, name: str) -> tuple[int, int]:
    answer = await create(client, version, f"new-{name}")
    return answer.topics[0].error_code, answer.throttle_time_ms


async def delete_one(client: Any, version: int, name: str) -> tuple[int, int]:
    answer = await delete(client, version, name)
    return answer.responses[0].error_code, answer.throttle_time_ms


async def grow_one(client: Any, version: int, name: str) -> tuple[int, int]:
    answer = await grow(client, version, 2, name)
    return answer.results[0].error_code, answer.throttle_time_ms


def stop_time(client: Any) -> None:
    client.broker.client_quotas._clock = client.broker.cases.quotas._clock = FakeClock()


def topics_of(client: Any) -> dict[str, int]:
    return {topic.name.local: topic.partition_count for topic in client.broker.topics}


KINDS: list[tuple[Ask, range, int]] = [
    (create_one, range(2, 8), 6),
    (delete_one, range(1, 7), 5),
    (grow_one, range(4), 3),
]


@pytest.mark.parametrize(
    ("ask", "version", "is_strict"),
    [
        pytest.param(ask, version, version >= strict, id=f"{ask.__name__} v{version}")
        for ask, versions, strict in KINDS
        for version in versions
    ],
)
def test_who_is_refused_and_who_waits(with_broker: Run, ask: Ask, version: int, is_strict: bool) -> None:
    async def scenario(client: Any) -> None:
        await create(client, 7, "a", "b")
        await limit(client)
        code, throttle_ms = await ask(client, version, "a")
        assert (code, throttle_ms > 0) == (0, not is_strict)
        before = topics_of(client)
        code, throttle_ms = await ask(client, version, "b")
        assert throttle_ms > 0
        if is_strict:
            assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert topics_of(client) == before
        else:
            assert code == 0
            assert topics_of(client) != before
        await limit(client, None)
        assert not is_strict or await ask(client, version, "b") == (0, 0)

    with_broker(scenario)


def test_the_first_goes_through_whole_and_the_rest_of_its_request_is_refused(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await limit(client)
        answer = await create(client, 7, "a", "b", "c", partitions=3)
        codes = [row.error_code for row in answer.topics]
        assert codes == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert answer.topics[1].error_message == "The throttling quota has been exceeded."
        assert answer.topics[1].configs == []
        assert answer.throttle_time_ms > 0
        assert topics_of(client) == {"a": 3}
        # Of another client nothing is owed.
        await limit(client, None)
        assert (await create(client, 7, "b")).throttle_time_ms == 0

    with_broker(scenario)


@pytest.mark.parametrize(("partitions", "left"), [(3, True), (4, False)])
def test_every_partition_counts_whatever_is_done_to_it(with_broker: Run, partitions: int, left: bool) -> None:
    async def scenario(client: Any) -> None:
        stop_time(client)
        await limit(client, 1.0)
        # Eleven may come at once, and the first that comes too many.
        await create(client, 7, "t", partitions=partitions)
        await grow(client, 3, partitions + 1, "t")
        await delete(client, 6, "t")
        await create(client, 7, "full", partitions=3)
        code, _ = await create_one(client, 7, "more")
        assert (code == 0) == left

    with_broker(scenario)


def test_what_is_refused_for_another_reason_does_not_count(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await create(client, 7, "there")
        await limit(client)
        for _ in range(3):
            assert (await create(client, 7, "there")).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert (await delete(client, 6, "none")).responses[0].error_code
            assert (await grow(client, 3, 1, "there")).results[0].error_code
        assert await create_one(client, 7, "t") == (0, 0)

    with_broker(scenario)


def test_what_is_only_checked_counts(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await limit(client)
        assert (await create(client, 7, "t", partitions=2, validate_only=True)).topics[0].error_code == 0
        answer = await create(client, 7, "t", validate_only=True)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert topics_of(client) == {}

    with_broker(scenario)


def test_a_topic_that_is_made_as_it_is_asked_for_counts_and_stays_unknown(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await limit(client)
        asked = MetadataRequest([MetadataRequestTopic(name=name) for name in ("a", "b")])
        for _ in range(2):
            answer = await client.ask("metadata", 12, asked)
            codes = {row.name: row.error_code for row in answer.topics}
            assert codes == {"a": 0, "b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            assert answer.throttle_time_ms == 0
        assert topics_of(client) == {"a": 1}
        await limit(client, None)
        assert [row.error_code for row in (await client.ask("metadata", 12, asked)).topics] == [0, 0]

    with_broker(scenario)


def test_the_rate_may_be_a_fraction_and_is_told(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await limit(client, 0.25)
        assert await describe(client) == [(CLIENT, {"controller_mutation_rate": 0.25})]
        for bad in (0.0, -0.5, float("nan"), float("inf")):
            assert await alter(client, entry(CLIENT, controller_mutation_rate=bad)) == [
                ErrorCode.INVALID_REQUEST
            ]

    with_broker(scenario)
