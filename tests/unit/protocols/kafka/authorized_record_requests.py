"""The smallest request of each kind about records: to write, read, find and delete them, see `authorized_kinds.py`."""

from typing import Any, Final

from magnetar.broker.security.model import Operation
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.protocols.kafka.authorized_kinds import (
    TOPIC,
    TOPIC_DENIED,
    TXN,
    TXN_DENIED,
    Kind,
    Names,
    right,
)


def _fetch(**topic: Any) -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(partitions=[partition], **topic)],
    )


def _produce(names: Names, **fields: Any) -> ProduceRequest:
    data = [PartitionProduceData(0, names.batch)]
    topic = TopicProduceData(names.topic, names.topic_id, data)
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic], **fields)


RECORD_KINDS: Final = [
    Kind("produce", 9, _produce, right(Operation.WRITE, TOPIC, TOPIC_DENIED), note="by name"),
    Kind("produce", 13, _produce, right(Operation.WRITE, TOPIC, TOPIC_DENIED), note="by id"),
    Kind(
        "produce",
        9,
        lambda n: _produce(n, transactional_id=n.transactional_id),
        right(Operation.WRITE, TXN, TXN_DENIED) | right(Operation.WRITE, TOPIC, TOPIC_DENIED),
        note="in a transaction",
    ),
    Kind(
        "fetch",
        12,
        lambda n: _fetch(topic=n.topic),
        right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
        note="by name",
    ),
    Kind(
        "fetch",
        13,
        lambda n: _fetch(topic_id=n.topic_id),
        right(Operation.READ, TOPIC, 0, TOPIC_DENIED),
        note="by id",
    ),
    Kind(
        "list_offsets",
        7,
        lambda n: ListOffsetsRequest(
            topics=[ListOffsetsTopic(n.topic, [ListOffsetsPartition(0, timestamp=-1)])]
        ),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "offset_for_leader_epoch",
        4,
        lambda n: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(n.topic, [OffsetForLeaderPartition(0, leader_epoch=0)])]
        ),
        right(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "describe_producers",
        0,
        lambda n: DescribeProducersRequest([TopicRequest(n.topic, [0])]),
        right(Operation.READ, TOPIC, TOPIC_DENIED),
    ),
    Kind(
        "delete_records",
        2,
        lambda n: DeleteRecordsRequest([DeleteRecordsTopic(n.topic, [DeleteRecordsPartition(0, 1)])], 1000),
        right(Operation.DELETE, TOPIC, TOPIC_DENIED),
    ),
]
