"""Produce as a client sees it: the answer to a refused batch."""

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from magnetar.broker.topics.model import NewTopic
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
