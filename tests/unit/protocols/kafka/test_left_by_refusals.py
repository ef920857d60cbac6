"""What a refused request leaves in memory: nothing that only the cycle collector can free (`circles.py`).

An error that an object or a variable keeps has a traceback, whose frames have that object or variable, and the request.
A client could fill the memory of a server with requests for which it has no right.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import cramjam
import pytest

from magnetar.base.names import TopicName
from magnetar.broker.topics.model import NewTopic
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magnetar.wire.kafka.records import TRANSACTIONAL
from tests.unit.circles import circles_of
from tests.unit.protocols.kafka.authorized_requests import KINDS
from tests.unit.protocols.kafka.share_queue import ACCEPT, Queue
from tests.unit.protocols.kafka.test_bombs import KEYED, KEYLESS, MILLION, batch, bomb, make, produced
from tests.unit.protocols.kafka.test_denied import TOKENS, Rules, furnished, missing

Run = Callable[..., None]


def test_a_request_without_its_right_leaves_no_circle(with_broker: Run) -> None:
    rules = Rules()

    async def scenario(client: Any) -> None:
        left: dict[str, Counter[str]] = {}
        names = await furnished(client)
        for kind in KINDS:
            for rights in kind.refusals:
                for about in (names, missing(names, rights)):
                    rules.clear()
                    rules.denied = rights
                    request = kind.request(about)
                    found = await circles_of(partial(client.ask, kind.api, kind.version, request))
                    if found:
                        left[kind.label] = found
        assert not left

    with_broker(scenario, authorizer=rules, delegation_tokens=TOKENS)


def test_a_request_about_what_is_not_there_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        left: dict[str, Counter[str]] = {}
        names = await furnished(client)
        nothing = names._replace(topic="nowhere", group="nobody", transactional_id="nothing")
        for kind in KINDS:
            found = await circles_of(partial(client.ask, kind.api, kind.version, kind.request(nothing)))
            if found:
                left[kind.label] = found
        assert not left

    with_broker(scenario, delegation_tokens=TOKENS)


@pytest.mark.parametrize(
    "data",
    [bomb(KEYLESS, MILLION), batch(bytes(cramjam.zstd.compress(KEYED))[:-3] + bytes(20_000), 1, 4)],
    ids=["without keys", "damaged"],
)
def test_a_batch_that_is_refused_once_it_is_opened_leaves_no_circle(
    with_broker: Run, data: bytearray
) -> None:
    """The thread's error had the work that waited for it, with the batch."""

    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")

        async def live() -> None:
            assert (await produced(client, data)).error_code

        assert not await circles_of(live)

    with_broker(scenario)


def test_an_acknowledgement_of_what_is_not_held_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        queue = await Queue(client).begin(1)
        assert await queue.fetch("m") == [(0, 0, 1)]

        async def live() -> None:
            refused = await queue.acknowledge("m", [(5, 5, [ACCEPT])])
            assert refused == ErrorCode.INVALID_RECORD_STATE

        assert not await circles_of(live)

    with_broker(scenario)


def test_a_batch_that_may_not_join_its_transaction_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await make(client, "t", "delete")
        producer = await client.broker.transactions.init_producer("x", 60_000)
        late = batch(
            KEYED, 1, TRANSACTIONAL, (producer.producer_id, producer.epoch, 7)
        )  # 0 has to come first
        rows = [PartitionProduceData(0, memoryview(late))]
        request = ProduceRequest("x", -1, 1000, [TopicProduceData("t", partition_data=rows)])

        async def live() -> None:
            answer = await client.ask("produce", 12, request)
            assert answer.responses[0].partition_responses[0].error_code

        assert not await circles_of(live)

    with_broker(scenario)


def test_a_fetch_that_waited_at_a_topic_that_goes_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        topics = client.broker.topics
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=300_000,
            min_bytes=1 << 19,
            max_bytes=1 << 20,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )

        async def live() -> None:
            await topics.create([topics.plan(NewTopic(TopicName.parse("t"), 1))])
            waiting = asyncio.ensure_future(client.ask("fetch", 12, request))
            await asyncio.sleep(0)
            await client.broker.delete_topic(topics.get(TopicName.parse("t")))
            (row,) = (await waiting).responses[0].partitions
            assert row.error_code
            async with asyncio.timeout(60):
                while topics.deleted.ids():  # noqa: ASYNC110  no code would set an event
                    await asyncio.sleep(0.001)
            for _ in range(20):  # what has ended is told those that wait for it
                await asyncio.sleep(0)

        assert not await circles_of(live)

    with_broker(scenario)
