"""DescribeTopicPartitions: topics and the leaders of their partitions, a page at a time (KIP-966).

Served: v0.  Topics are in order of name; a request without topics means all.  A page has at most
`PARTITIONS_PER_PAGE_MAX` partitions or what the client allows, and at least one; the cursor says where the next page
starts.  All replicas are in sync, so the list of eligible leaders that are not is empty.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.usecases.handles import TopicHandle
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.permissions import bits
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_topic_partitions as codec
from magnetar.wire.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

VERSIONS = (0, 0)

PARTITIONS_PER_PAGE_MAX: Final = 2000  # Kafka's max.request.partition.size.limit


def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    names = {topic.name for topic in request.topics}
    if not names:
        names = {
            context.cases.kafka_names.shown(one.name) for one in context.cases.topics.list(context.caller)
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
        row, topic = _find(context, name)
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


def _find(
    context: RequestContext, name: str
) -> tuple[DescribeTopicPartitionsResponseTopic, TopicHandle | None]:
    topics = context.cases.topics
    try:
        topic = topics.describe(context.caller, name)
    except (InvalidTopicName, NotAuthorized) as error:
        return _refused(name, error_code(error)), None
    except BrokerError as error:
        row = _refused(name, error_code(error))
        row.topic_authorized_operations = bits(topics.operations(context.caller, name))
        return row, None
    row = DescribeTopicPartitionsResponseTopic(
        ErrorCode.NONE,
        name,
        topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=bits(topics.operations(context.caller, name)),
    )
    return row, topic


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(code, name)


def _partition(topic: TopicHandle, index: int) -> DescribeTopicPartitionsResponsePartition:
    replicas = topic.replicas[index]
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE, index, replicas[0], topic.leader_epoch(index), replicas, replicas, [], []
    )


API = Api.of(codec, VERSIONS, handle)
