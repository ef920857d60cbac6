"""A large batch waits while answers that their clients do not take fill the memory, and small ones are sent."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.base.memory_budget import REFUSED_MS
from tests.unit.protocols.kafka.test_fetch_waiting import asked, begin, handle, topic_of, turns

Run = Callable[..., None]
LARGE, SMALL = 50, 1  # records of a batch: 461 bytes, and 69
MEMORY_BYTES = 100 << 10  # of which a 1024th is small


class Lazy:
    """A connection whose socket takes nothing."""

    def __init__(self, unsent: int) -> None:
        self.unsent = unsent

    def unsent_bytes(self) -> int:
        return self.unsent

    def cut_off(self, reason: str) -> None:
        raise AssertionError(reason)


def fill(client: Any) -> Lazy:
    memory = client.service.memory
    memory.bytes_max = MEMORY_BYTES
    lazy = Lazy(memory.bytes_max // 8 * 7)
    memory.sending(lazy, lazy.unsent)
    return lazy


def rows_of(response: Any) -> list[Any]:
    return [row for one in response.responses for row in one.partitions]


@pytest.mark.parametrize("is_cached", [True, False])
def test_it_is_answered_without_a_batch_and_with_a_time_to_wait(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, is_cached: bool
) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(0), LARGE)
        lazy = fill(client)
        if not is_cached:
            monkeypatch.setattr(type(topic.partition(0).log), "read_cached", lambda *_: None)
        answer = handle(client, asked(range(1)))
        response = answer if is_cached else await answer
        assert (response.throttle_time_ms, response.responses) == (REFUSED_MS, [])
        client.service.memory.sent(lazy)
        answer = handle(client, asked(range(1)))
        response = answer if is_cached else await answer
        assert response.throttle_time_ms == 0
        assert rows_of(response)[0].records
        assert client.service.memory.used == 0

    with_broker(scenario)


def test_a_small_batch_is_sent_also_beside_a_large_one(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(0), LARGE)
        await client.append(topic.partition(1), SMALL)
        fill(client)
        response = handle(client, asked(range(2)))
        assert response.throttle_time_ms == 0
        assert [bool(row.records) for row in rows_of(response)] == [False, True]

    with_broker(scenario)


def test_a_client_that_asks_for_less_than_a_batch_gets_it_while_there_is_room(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        await client.append(topic.partition(0), LARGE)
        request = asked(range(1))
        request.max_bytes = 1
        assert rows_of(handle(client, request))[0].records
        request.topics[0].partitions[0].partition_max_bytes = 1
        assert rows_of(handle(client, request))[0].records

    with_broker(scenario)


def test_a_fetch_that_has_waited_is_answered_so_too(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topic = await topic_of(client)
        deferred = begin(client, asked(range(1)))
        answers: list[Any] = []
        deferred.attach(answers.append)
        fill(client)
        await client.append(topic.partition(0), LARGE)
        await turns()
        assert [answer.throttle_time_ms for answer in answers] == [REFUSED_MS]

    with_broker(scenario)
