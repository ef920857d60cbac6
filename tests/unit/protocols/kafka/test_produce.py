"""Produce as a client sees it: the answer to a refused batch."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from magnetar.broker.topics.model import NewTopic
from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.state import State
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

Run = Callable[..., None]


def batch(keys: list[bytes | None], compression: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, key in enumerate(keys):
        builder.append(offset, timestamp=1_700_000_000_000, key=key, value=b"v", headers=[])
    return bytes(builder.build())


@pytest.mark.parametrize("compression", [0, 1, 4])
@pytest.mark.parametrize("version", [7, 8, 12])
def test_keyless_records_of_a_compacted_topic_are_named(
    with_broker: Run, version: int, compression: int
) -> None:
    keys: list[bytes | None] = [b"a", None, b"b", None]

    async def scenario(client: Any) -> None:
        topics = client.broker.topics
        new = NewTopic(client.broker.kafka_topics.name("compacted"), 1, configs={"cleanup.policy": "compact"})
        await topics.create([topics.plan(new)])
        data = PartitionProduceData(0, memoryview(batch(keys, compression)))
        request = ProduceRequest(acks=-1, topic_data=[TopicProduceData("compacted", partition_data=[data])])
        response = await client.ask("produce", version, request)
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert answer.base_offset == -1
        assert [each.batch_index for each in answer.record_errors] == ([1, 3] if version >= 8 else [])

    with_broker(scenario)


@pytest.mark.parametrize("version", [7, 12])
def test_a_partition_that_another_broker_has_taken_over_is_led_elsewhere(
    with_broker: Run, version: int
) -> None:
    """Clients then ask for the leader, and send the batch again."""

    async def scenario(client: Any) -> None:
        topics = client.broker.topics
        name = client.broker.kafka_topics.name("taken")
        await topics.create([topics.plan(NewTopic(name, 1))])
        log = topics.get(name).partition(0).log
        await client.broker.metadata.put(METADATA_ROOT + log.name, b"{}")
        for _ in range(2):  # the first one waits for a ledger, the second one finds the log lost
            data = PartitionProduceData(0, memoryview(batch([b"key"], 0)))
            request = ProduceRequest(acks=-1, topic_data=[TopicProduceData("taken", partition_data=[data])])
            response = await client.ask("produce", version, request)
            (answer,) = response.responses[0].partition_responses
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.base_offset == -1
        assert log.state is State.LOST

    with_broker(scenario)
