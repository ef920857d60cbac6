"""One connection takes only a part of what there may be of share sessions."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.subscriptions.share import sessions
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_fetch
from magnetar.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
    RequestTopic,
)
from tests.unit.protocols.kafka.share_queue import Queue, joins

Run = Callable[..., None]


def test_one_connection_has_only_some_of_the_sessions(with_broker: Run) -> None:
    """Two thousand small requests of one client kept the share consumers of all others out."""

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin()
        for number in range(sessions.OF_CONNECTION_MAX):
            await queue.fetch(f"m{number}")
        assert (await queue.ask("more")).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        await queue.fetch("m0")
        queue.epochs["m0"] = 0  # it begins anew
        await queue.fetch("m0")
        client.connection_id = 2
        await queue.fetch("more")
        client.connection_id = 1
        queue.epochs["more"] = 0
        assert (await queue.ask("more")).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        queue.epochs["m1"] = -1
        await queue.fetch("m1")
        await queue.fetch("more")

    with_broker(scenario)


def test_one_connection_has_only_some_of_the_places(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PLACES_OF_CONNECTION_MAX", 4)

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin()

        def topics(*indexes: int) -> list[share_fetch.FetchTopic]:
            parts = [share_fetch.FetchPartition(index, []) for index in indexes]
            return [share_fetch.FetchTopic(queue.topic_id, parts)]

        for member, wanted, code in (
            ("m", (0, 1, 2), ErrorCode.NONE),
            ("m", (0, 1, 2), ErrorCode.NONE),
            ("n", (0,), ErrorCode.NONE),
            ("n", (1,), ErrorCode.SHARE_SESSION_LIMIT_REACHED),
        ):
            answer = await queue.ask(member, topics=topics(*wanted))
            assert answer.error_code == code
        client.connection_id = 2
        answer = await queue.ask("o", topics=topics(0, 1, 2, 3))
        assert answer.error_code == ErrorCode.NONE

    with_broker(scenario)


def test_a_position_is_shown_once_and_in_turns_however_often_it_is_named(with_broker: Run) -> None:
    """To count what is not acknowledged may take milliseconds; some kilobytes asked for it sixteen thousand times."""

    async def scenario(client: Any) -> None:
        await Queue(client).begin(3)
        await client.ask("share_group_heartbeat", 1, joins())
        indexes = [*[0] * 1_000, *range(20, 0, -1)]
        wanted = RequestGroup("g", [RequestTopic("t", indexes), RequestTopic("nowhere", indexes)])
        (group,) = (
            await client.ask("describe_share_group_offsets", 1, DescribeShareGroupOffsetsRequest([wanted]))
        ).groups
        there, nowhere = group.topics
        for topic in there, nowhere:
            assert [row.partition_index for row in topic.partitions] == [0, *range(20, 0, -1)]
        assert {row.error_code for row in there.partitions[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert there.partitions[0].error_code == ErrorCode.NONE
        assert {row.error_code for row in nowhere.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert client.service.large.elements_in_turn_max <= 6

    with_broker(scenario)
