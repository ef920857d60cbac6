"""Share consumers whose partition ends, or sends them away, while they hold records or fetch."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.subscriptions.share.consumer import ShareConsumer
from magnetar.broker.usecases.sharing import SharedPartition
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.share_fetch import ForgottenTopic
from tests.unit.circles import circles_of
from tests.unit.protocols.kafka.share_queue import Queue, short_locks
from tests.unit.protocols.kafka.wire import until

Run = Callable[..., None]
TURNS = 50


async def delete(client: Any, queue: Queue) -> None:
    await client.broker.delete_topic(queue.partition.topic)


async def drop(client: Any, queue: Queue) -> None:
    await client.broker.subscriptions.delete(queue.partition, "g", force=True)


@pytest.mark.parametrize("end", [delete, drop], ids=lambda end: end.__name__)
def test_the_end_of_a_lock_that_nothing_holds_is_looked_at_once(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, end: Any
) -> None:
    """The consumer looked again in each turn of the loop, for as long as its session lasted."""
    looks = 0
    original = ShareConsumer._look

    def look(consumer: ShareConsumer) -> None:
        nonlocal looks
        looks += 1
        original(consumer)

    monkeypatch.setattr(ShareConsumer, "_look", look)

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        await end(client, queue)
        async with asyncio.timeout(60):
            await until(lambda: looks)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert looks == 1

    with_broker(scenario, groups=short_locks(100))


def test_a_session_lets_go_of_a_partition_that_is_gone(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        assert await queue.fetch("m") == [(0, 2, 1)]
        await delete(client, queue)
        forgotten = [ForgottenTopic(queue.topic_id, [0])]
        assert await queue.fetch("m", topics=[], forgotten_topics_data=forgotten) == []
        (session,) = client.broker.share_sessions._sessions.values()
        assert not session.places

    with_broker(scenario)


@pytest.mark.parametrize("end", [delete, drop], ids=lambda end: end.__name__)
def test_a_fetch_that_reads_while_its_subscription_ends_gets_nothing_of_it(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: Any
) -> None:
    """It failed with a traceback, and its session ended."""
    original = SharedPartition._entries

    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(3)
        await queue.fetch("m", max_records=0)

        async def entries(self: SharedPartition, *args: Any) -> Any:
            found = await original(self, *args)
            await end(client, queue)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(SharedPartition, "_entries", entries)
            answer = await queue.ask("m")
        assert answer.error_code == ErrorCode.NONE
        assert not any(row.acquired_records for topic in answer.responses for row in topic.partitions)
        assert len(client.broker.share_sessions) == 1

    with caplog.at_level(logging.ERROR):
        with_broker(scenario)
    assert not caplog.records


def test_what_a_consumer_held_when_its_partition_ended_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        async def live() -> None:
            queue = await Queue(client).begin(3)
            assert await queue.fetch("m") == [(0, 2, 1)]
            await delete(client, queue)
            client.broker.cases.sharing.connection_lost(1)
            async with asyncio.timeout(60):
                await until(lambda: not client.broker.topics.deleted.ids())
            for _ in range(20):  # what has ended is told those that wait for it
                await asyncio.sleep(0)

        assert not await circles_of(live)

    with_broker(scenario)
