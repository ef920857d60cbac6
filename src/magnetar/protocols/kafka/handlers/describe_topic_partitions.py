"""DescribeTopicPartitions: topics and who leads their partitions, a page at a time (KIP-966).

Served: v0.  Topics come in order of name; no topics means all.  A page has at most `PARTITIONS_PER_PAGE_MAX` partitions
or what the client allows, and at least one; the cursor says where the next page starts.  All replicas are in sync, so
nobody is eligible to lead but not in sync.
"""

from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.permissions import TOPIC_OPERATIONS
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.topics.topic import Topic
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "describe_topic_partitions"
VERSIONS = (0, 0)

PARTITIONS_PER_PAGE_MAX: Final = 2000  # Kafka's max.request.partition.size.limit


def handle(
    context: "RequestContext", request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    broker = context.broker
    names = {topic.name for topic in request.topics} or {
        broker.kafka_name(topic.name) for topic in (*broker.topics, *broker.internal_topics.present())
    }
    cursor = request.cursor
    first_index = 0
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            return DescribeTopicPartitionsResponse(
                topics=[_refused(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
            )
        names = {name for name in names if name >= cursor.topic_name}
        first_index = cursor.partition_index
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        start = first_index if cursor is not None and name == cursor.topic_name else 0
        if left == 0:
            response.next_cursor = Cursor(name, 0)
            break
        row, topic = _find(broker, name)
        response.topics.append(row)
        if topic is None:
            continue
        end = min(topic.partition_count, start + left)
        row.partitions = [_partition(topic, index) for index in range(start, end)]
        left -= len(row.partitions)
        if end < topic.partition_count:
            response.next_cursor = Cursor(name, end)
            break
    return response


def _find(broker: "Broker", name: str) -> "tuple[DescribeTopicPartitionsResponseTopic, Topic | None]":
    try:
        topic = broker.kafka_topic(name)
    except BrokerError as error:
        row = _refused(name, error_code(error))
        row.topic_authorized_operations = TOPIC_OPERATIONS
        return row, None
    row = DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE,
        name,
        topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    return row, topic


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(code, name)


def _partition(topic: "Topic", index: int) -> DescribeTopicPartitionsResponsePartition:
    replicas = topic.replicas[index]
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE, index, replicas[0], topic.leader_epoch(index), replicas, replicas, [], []
    )
