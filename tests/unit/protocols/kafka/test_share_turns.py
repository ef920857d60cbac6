"""Requests of share consumers that name very many partitions: other clients get turns meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.protocols.kafka.handlers import share_fetch as handler
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_fetch
from tests.unit.protocols.kafka.share_queue import ACCEPT, Queue

Run = Callable[..., None]


def test_a_fetch_of_very_many_partitions_takes_turns(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests of some kilobytes named them; each request of some bytes then held the loop for a second."""
    monkeypatch.setattr(handler, "ELEMENTS_AT_ONCE", 150)

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        parts = [share_fetch.FetchPartition(index, []) for index in reversed(range(250))]
        topics = [share_fetch.FetchTopic(queue.topic_id, parts)]
        turns = client.service.large.turns
        answer = await queue.ask("m", topics=topics)
        assert client.service.large.turns == turns + 2
        rows = {row.partition_index: row for topic in answer.responses for row in topic.partitions}
        assert [one.last_offset for one in rows.pop(0).acquired_records] == [2]
        assert {row.error_code for row in rows.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    with_broker(scenario)


def test_very_many_partitions_are_acknowledged_in_turns(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.protocols.kafka.share_acknowledging.ELEMENTS_AT_ONCE", 150)

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        said = [share_fetch.AcknowledgementBatch(0, 2, [ACCEPT])]
        parts = [share_fetch.FetchPartition(index, said) for index in range(250)]
        topics = [share_fetch.FetchTopic(queue.topic_id, parts)]
        turns = client.service.large.turns
        answer = await queue.ask("m", topics=topics, max_records=0)
        assert client.service.large.turns == turns + 3
        rows = {row.partition_index: row for topic in answer.responses for row in topic.partitions}
        assert rows.pop(0).acknowledge_error_code == ErrorCode.NONE
        assert len(rows) == 249
        assert {row.acknowledge_error_code for row in rows.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert (await queue.stored()).mark_delete == 3

    with_broker(scenario)
