"""DescribeTopicPartitions: topics and the leaders of their partitions, a page at a time (KIP-966).

Served: v0.  Topics are in order of name; a request without topics means all.  A page has at most
`PARTITIONS_PER_PAGE_MAX` partitions or what the client allows, and at least one; the cursor says where the next page
starts.  All replicas are in sync, so the list of eligible leaders that are not is empty.
"""

from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.usecases.handles import TopicHandle
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.leaders import NO_NODE
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
_TOPICS_PER_TURN: Final = 50  # each is looked up with its operations: a millisecond for all
_LOOKED_AT_PER_TURN: Final = 500


async def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    asked_for = {topic.name for topic in request.topics}
    if cursor is not None and (
        cursor.partition_index < 0 or (asked_for and cursor.topic_name not in asked_for)
    ):
        return DescribeTopicPartitionsResponse(
            topics=[_refused(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        )
    first_name = "" if cursor is None else cursor.topic_name
    page = _Page(context, max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX)))
    names = sorted(name for name in asked_for if name >= first_name)
    if not asked_for:
        names = await _first_names(context, first_name, page.left + 1)
    large = context.service.large
    for begin in range(0, len(names), _TOPICS_PER_TURN):
        async with large.turn(_TOPICS_PER_TURN):
            for name in names[begin : begin + _TOPICS_PER_TURN]:
                start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
                page.add(name, start, is_listed=not asked_for)
                if page.response.next_cursor is not None:
                    return page.response
    return page.response


async def _first_names(context: RequestContext, first_name: str, count: int) -> list[str]:
    """The first names from `first_name` on of all topics, ascending.  Each topic has a partition, so a page has no
    more topics than partitions.
    """
    found: list[str] = []
    shown = context.cases.kafka_names.shown

    def look(topics: Sequence[TopicHandle]) -> None:
        names = [name for topic in topics if (name := shown(topic.name)) >= first_name]
        found[:] = sorted(found + names)[:count]

    pages = context.cases.topics.pages(context.caller, _LOOKED_AT_PER_TURN)
    await context.service.large.each_piece(pages, look)
    return found


class _Page:
    """A response that is being made; `left` is how many more partitions it may have."""

    def __init__(self, context: RequestContext, partitions_max: int) -> None:
        self.response = DescribeTopicPartitionsResponse()
        self.left = partitions_max
        self._context = context

    def add(self, name: str, start: int, *, is_listed: bool) -> None:
        """Add a topic's partitions from `start` on; the cursor is set where the page ends before the last one."""
        if self.left == 0:
            self.response.next_cursor = Cursor(name, 0)
            return
        row, topic = _find(self._context, name)
        if topic is None and is_listed:
            return  # deleted since it was listed
        self.response.topics.append(row)
        if topic is None:
            return
        end = min(topic.partition_count, start + self.left)
        placed = enumerate(topic.placed(start, end), start)
        row.partitions = [_partition(index, nodes, epoch) for index, (nodes, epoch) in placed]
        self.left -= len(row.partitions)
        if end < topic.partition_count:
            self.response.next_cursor = Cursor(name, end)


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


def _partition(index: int, nodes: list[int], epoch: int) -> DescribeTopicPartitionsResponsePartition:
    if not nodes:
        return DescribeTopicPartitionsResponsePartition(
            ErrorCode.LEADER_NOT_AVAILABLE, index, NO_NODE, epoch, [], [], [], []
        )
    return DescribeTopicPartitionsResponsePartition(
        ErrorCode.NONE, index, nodes[0], epoch, nodes, nodes, [], []
    )


API = Api.of(codec, VERSIONS, handle)
