"""A publish rate counts what Kafka's producers send, on the topic and on its resource group."""

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.topics.model import NewTopic
from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.protocols.kafka.conftest import record_batch

Run = Callable[..., None]
RECORDS = 10


async def of_topic(broker: Any, messages: int, size: int) -> None:
    rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size}
    await broker.namespaces.change("public/default", lambda found: {**found, "publishMaxMessageRate": rate})


async def of_group(broker: Any, messages: int, size: int) -> None:
    await broker.resource_groups.put("g", {"publishRateInMsgs": messages, "publishRateInBytes": size})
    await broker.namespaces.change("public/default", lambda found: {**found, "resource_group_name": "g"})


@pytest.mark.parametrize("limited", [of_topic, of_group])
@pytest.mark.parametrize("is_of_bytes", [False, True])
def test_a_produce_over_the_rate_owes_time(with_broker: Run, limited: Any, is_of_bytes: bool) -> None:
    async def scenario(client: Any) -> None:
        broker = client.broker
        broker._limits._clock = broker.resource_groups._clock = FakeClock()
        batch = record_batch(RECORDS, broker.clock.now_ms())
        await limited(broker, *((-1, len(batch)) if is_of_bytes else (RECORDS, -1)))
        name = broker.kafka_topics.name("limited")
        await broker.topics.create([broker.topics.plan(NewTopic(name, 1))])
        partition = broker.topics.get(name).partition(0)
        for sent in (1, 2, 3):
            data = PartitionProduceData(0, memoryview(bytearray(batch)))
            request = ProduceRequest(acks=-1, topic_data=[TopicProduceData("limited", partition_data=[data])])
            response = await client.ask("produce", 9, request)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert partition.owed_s() == pytest.approx(sent - 1)

    with_broker(scenario)
