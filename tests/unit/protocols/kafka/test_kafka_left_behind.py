"""What the end of one of Kafka's clients leaves in memory: nothing that only the cycle collector can free."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.wire.kafka.messages import fetch, produce
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.circles import circles_of
from tests.unit.protocols.kafka.conftest import record_batch
from tests.unit.protocols.kafka.test_bombs import KEYLESS, MILLION, bomb, make, produce_of
from tests.unit.protocols.kafka.wire import Wire, until

Say = Callable[[Wire], None]


def fetches(wire: Wire) -> None:
    """The topic is at its end: it waits."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=[wanted])
    wire.feed(
        fetch, 12, FetchRequest(max_wait_ms=300_000, min_bytes=1 << 20, max_bytes=1 << 20, topics=[topic])
    )


def produces(wire: Wire) -> None:
    rows = [PartitionProduceData(index=0, records=memoryview(record_batch(2, 1)))]
    wire.feed(
        produce,
        9,
        ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=rows)]
        ),
    )


@pytest.mark.parametrize("say", [fetches, produces], ids=lambda say: say.__name__)
def test_a_client_that_goes_while_its_request_waits_leaves_no_circle(
    with_broker: Callable[..., None], say: Say
) -> None:
    async def scenario(client: Any) -> None:
        await client.ask("metadata", 9, MetadataRequest([MetadataRequestTopic(name="t")]))

        async def live() -> None:
            wire = Wire(client)
            say(wire)
            await asyncio.sleep(0)
            assert not wire.bytes
            wire.session.closed()
            del wire.session  # as a connection forgets it
            for _ in range(20):  # what has ended is told those that wait for it
                await asyncio.sleep(0.001)

        assert not await circles_of(live)

    with_broker(scenario)


@pytest.mark.parametrize("goes", [False, True], ids=["stays", "goes"])
def test_a_batch_that_has_to_be_opened_leaves_no_circle(with_broker: Callable[..., None], goes: bool) -> None:
    """What is left of its request refers to its answer, which has that; and the task of that to its session."""

    async def scenario(client: Any) -> None:
        await make(client, "compacted", "compact")
        opener = client.broker.opener

        async def live() -> None:
            wire, opened = Wire(client), opener.small_done
            wire.feed(produce, 9, produce_of(bomb(KEYLESS, MILLION)))
            await asyncio.sleep(0)
            assert not wire.bytes
            if not goes:
                await until(lambda: wire.bytes)
            wire.session.closed()
            del wire.session  # as a connection forgets it
            await until(lambda: opener.small_done > opened)
            for _ in range(20):  # what has ended is told those that wait for it
                await asyncio.sleep(0.001)

        assert not await circles_of(live)

    with_broker(scenario)
