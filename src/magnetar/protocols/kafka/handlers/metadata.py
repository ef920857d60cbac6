"""Metadata: nodes, topics and the leaders of their partitions.

Served: v0-13 (topic ids v10+).  The server creates a topic that does not exist if the client and
`auto.create.topics.enable` allow it.  If the client's quota of mutations does not allow it, the topic stays unknown
(KIP-599).  The answer has a topic under the name that the client used; a listing has the names of
`TopicName.kafka_name`.  If the caller may not describe a topic, a request that names it is refused, and a listing
leaves it out.  `__consumer_offsets` and `__transaction_state` are shown as internal once there is a group or a
transactional id: with 50 partitions each and no records.  Clients cannot write to, change or delete them.
"""

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import QuotaExceeded, UnknownTopic
from magnetar.broker.usecases.handles import TopicHandle
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.counted import counted
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.handlers.create_topics import PARTITIONS_PER_REQUEST_MAX
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN, Large
from magnetar.protocols.kafka.leaders import NO_NODE, node_endpoints
from magnetar.protocols.kafka.permissions import bits
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import metadata as codec
from magnetar.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.runtime import ZERO_UUID, paced

VERSIONS = (0, 13)

PARTITION_BYTES: Final = 600  # of a topic with one partition, as objects and in the response
_AUTO_CREATE_FIELD_SINCE: Final = 4


def handle(
    context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse | Large]:
    nodes = context.cases.nodes
    response = MetadataResponse(
        brokers=node_endpoints(context, MetadataResponseBroker),
        cluster_id=nodes.cluster_id,
        controller_id=nodes.controller_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = bits(nodes.operations(context.caller))
    answer = _Answer(context, request, response)
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version == 0):
        if context.cases.topics.partition_count > ELEMENTS_AT_ONCE:
            return answer.list_in_turns()
        for page in context.cases.topics.pages(context.caller, ELEMENTS_AT_ONCE):
            for topic in page:
                answer.show(topic)
        return answer.finish()
    if len(wanted) > ELEMENTS_AT_ONCE:
        return answer.find_in_turns(wanted)
    for one in _distinct(wanted):
        answer.find(one)
    return answer.finish()


def _distinct(wanted: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """The requested topics without duplicates: as in Kafka, a topic that is named twice is described once."""
    found: dict[tuple[bytes, str | None], MetadataRequestTopic] = {}
    for one in paced(wanted):
        found.setdefault((one.topic_id, one.name), one)
    # One by one, because freeing so many keys at once would take long, too.
    distinct = [found.popitem()[1] for _ in paced(range(len(found)))]
    distinct.reverse()
    return distinct


class _Answer:
    """A response that is being built: first topics are found, then their partitions are described."""

    def __init__(self, context: RequestContext, request: MetadataRequest, response: MetadataResponse) -> None:
        self._context = context
        self._request = request
        self._response = response
        self._found: list[tuple[MetadataResponseTopic, TopicHandle]] = []
        self._missing: list[MetadataResponseTopic] = []
        self._creates = request.allow_auto_topic_creation or context.api_version < _AUTO_CREATE_FIELD_SINCE

    def add(self, topic: TopicHandle, name: str) -> None:
        row = MetadataResponseTopic(ErrorCode.NONE, name, topic.topic_id, is_internal=topic.is_internal)
        self._response.topics.append(row)
        self._tell_operations(row, topic)
        self._found.append((row, topic))

    def _tell_operations(self, row: MetadataResponseTopic, topic: TopicHandle) -> None:
        if self._request.include_topic_authorized_operations:
            operations = self._context.cases.topics.operations(self._context.caller, topic.name.full)
            row.topic_authorized_operations = bits(operations)

    def show(self, topic: TopicHandle) -> None:
        self.add(topic, self._context.cases.kafka_names.shown(topic.name))

    def find(self, wanted: MetadataRequestTopic) -> None:
        context, topics = self._context, self._context.cases.topics
        try:
            if wanted.topic_id != ZERO_UUID:
                self.show(topics.describe_by_id(context.caller, wanted.topic_id))
            elif not wanted.name:
                self._refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, wanted.name)
            else:
                self.add(topics.describe(context.caller, wanted.name), wanted.name)
        except UnknownTopic:
            row = self._refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
            if self._creates:
                self._missing.append(row)
        except BrokerError as error:
            self._refuse(error_code(error), wanted.name or None, wanted.topic_id)

    def _refuse(
        self, code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
    ) -> MetadataResponseTopic:
        row = MetadataResponseTopic(code, name, topic_id)
        self._response.topics.append(row)
        return row

    async def list_in_turns(self) -> Large:
        partition_count = self._context.cases.topics.partition_count
        return await counted(self._context, partition_count * PARTITION_BYTES, self._list)

    async def _list(self) -> MetadataResponse:
        pages = self._context.cases.topics.pages(self._context.caller, ELEMENTS_PER_TURN)
        await self._context.service.large.each_piece(pages, self._show_page)
        await self._finish_in_turns()
        return self._response

    def _show_page(self, topics: Sequence[TopicHandle]) -> None:
        for topic in topics:
            self.show(topic)

    async def find_in_turns(self, wanted: list[MetadataRequestTopic]) -> Large:
        large = self._context.service.large
        await large.each(await large.work(partial(_distinct, wanted)), self.find)
        return await self._finish_in_turns()

    def finish(self) -> MetadataResponse | Awaitable[MetadataResponse | Large]:
        """Describe the topics that were found; at once if they are few and no topic must be created."""
        if self._missing:
            return self._create_and_finish()
        if sum(topic.partition_count for _, topic in self._found) > ELEMENTS_AT_ONCE:
            return self._finish_in_turns()
        return self._finish_at_once()

    def _finish_at_once(self) -> MetadataResponse:
        for row, topic in self._found:
            row.partitions = _partitions(topic, 0, topic.partition_count)
        return self._response

    async def _create_and_finish(self) -> MetadataResponse | Large:
        await self._create()
        answer = self.finish()
        return await answer if isinstance(answer, Awaitable) else answer

    async def _finish_in_turns(self) -> Large:
        if self._missing:
            await self._create()
        large = self._context.service.large
        for parts in _in_turns(self._found):
            async with large.turn(sum(end - start for _, _, start, end in parts)):
                for row, topic, start, end in parts:
                    row.partitions += _partitions(topic, start, end)
        return Large(self._response)

    async def _create(self) -> None:
        """Create missing topics, at most as many as one CreateTopics may create; the others stay unknown."""
        topics = self._context.cases.topics
        missing, self._missing = self._missing, []
        mutations = self._context.meter.mutations(is_strict=True)
        partitions_each = max(topics.partition_count_default, 1)
        for row in missing[: max(PARTITIONS_PER_REQUEST_MAX // partitions_each, 1)]:
            assert row.name is not None
            try:
                topic = await topics.ensure(self._context.caller, row.name, mutations)
            except QuotaExceeded:
                pass  # still unknown, as in Kafka: the client asks again
            except BrokerError as error:
                row.error_code = error_code(error)
            else:
                row.error_code, row.topic_id = ErrorCode.NONE, topic.topic_id
                self._tell_operations(row, topic)
                self._found.append((row, topic))


def _in_turns(
    found: Iterable[tuple[MetadataResponseTopic, TopicHandle]],
) -> Iterator[list[tuple[MetadataResponseTopic, TopicHandle, int, int]]]:
    """Which partitions to describe in each turn: (row, topic, first, end) of a few topics, or of a part of one."""
    parts: list[tuple[MetadataResponseTopic, TopicHandle, int, int]] = []
    room = ELEMENTS_PER_TURN
    for row, topic in found:
        start = 0
        while start < topic.partition_count:
            end = min(start + room, topic.partition_count)
            parts.append((row, topic, start, end))
            room -= end - start
            start = end
            if not room:
                yield parts
                parts, room = [], ELEMENTS_PER_TURN
    if parts:
        yield parts


def _partitions(topic: TopicHandle, start: int, end: int) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(ErrorCode.NONE, index, nodes[0], epoch, nodes, nodes)
        if nodes
        else MetadataResponsePartition(ErrorCode.LEADER_NOT_AVAILABLE, index, NO_NODE, epoch)
        for index, (nodes, epoch) in enumerate(topic.placed(start, end), start)
    ]


API = Api.of(codec, VERSIONS, handle)
