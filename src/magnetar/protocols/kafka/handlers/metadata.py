"""Metadata: nodes, topics and who leads their partitions.

Served: v0-13 (topic ids v10+).  Topics that do not exist are made when the client and `auto.create.topics.enable` allow
it.  A topic is echoed under the name that was asked for; a listing shows names as `TopicName.kafka_name` does.
Who asks for authorized operations may do all of them: there is no authorizer (`permissions.py`).
`__consumer_offsets` and `__transaction_state` are shown as internal once there is a group or a transactional id: with
50 partitions each, which have no records; nobody writes to them, changes or deletes them.
"""

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import UnknownTopic
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.handlers.create_topics import PARTITIONS_PER_REQUEST_MAX
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN, Large
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.permissions import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.runtime import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.broker.topics.topic import Topic
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "metadata"
VERSIONS = (0, 13)

_AUTO_CREATE_FIELD_SINCE: Final = 4
NAMES_PER_TURN: Final = 10_000  # of which it is only found out whether they are the same


def handle(
    context: "RequestContext", request: MetadataRequest
) -> "MetadataResponse | Awaitable[MetadataResponse | Large]":
    broker = context.broker
    response = MetadataResponse(
        brokers=node_endpoints(context, MetadataResponseBroker),
        cluster_id=broker.settings.cluster_id,
        controller_id=broker.nodes.controller_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    answer = _Answer(context, request, response)
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version == 0):
        every = [*broker.topics, *broker.internal_topics.present()]
        if len(every) > ELEMENTS_AT_ONCE:
            return answer.list_in_turns(every)
        for topic in every:
            answer.show(topic)
        return answer.finish()
    if len(wanted) > ELEMENTS_AT_ONCE:
        return answer.find_in_turns(wanted)
    for one in _unique(wanted).values():
        answer.find(one)
    return answer.finish()


def _unique(wanted: "Sequence[MetadataRequestTopic]") -> dict[tuple[bytes, str | None], MetadataRequestTopic]:
    """Named twice, it is described once: so does Kafka."""
    return {(one.topic_id, one.name): one for one in wanted}


def _with_operations(request: MetadataRequest, response: MetadataResponse) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for row in response.topics:
            if row.error_code == ErrorCode.NONE:
                row.topic_authorized_operations = TOPIC_OPERATIONS
    return response


class _Answer:
    """A response while it is put together: topics are found first, their partitions described afterwards."""

    def __init__(
        self, context: "RequestContext", request: MetadataRequest, response: MetadataResponse
    ) -> None:
        self._context = context
        self._request = request
        self._response = response
        self._found: list[tuple[MetadataResponseTopic, Topic]] = []
        self._missing: list[MetadataResponseTopic] = []
        self._may_create = context.broker.settings.auto_create_topics and (
            request.allow_auto_topic_creation or context.api_version < _AUTO_CREATE_FIELD_SINCE
        )

    def add(self, topic: "Topic", name: str) -> None:
        row = MetadataResponseTopic(ErrorCode.NONE, name, topic.topic_id, is_internal=topic.is_internal)
        self._response.topics.append(row)
        self._found.append((row, topic))

    def show(self, topic: "Topic") -> None:
        self.add(topic, self._context.broker.kafka_name(topic.name))

    def find(self, wanted: MetadataRequestTopic) -> None:
        broker = self._context.broker
        try:
            if wanted.topic_id != ZERO_UUID:
                topic = broker.topics.get_by_id(wanted.topic_id)
                self.show(topic)
            elif not wanted.name:
                self._refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, wanted.name)
            else:
                self.add(broker.kafka_topic(wanted.name), wanted.name)
        except UnknownTopic:
            row = self._refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
            if self._may_create:
                self._missing.append(row)
        except BrokerError as error:
            self._refuse(error_code(error), wanted.name or None, wanted.topic_id)

    def _refuse(
        self, code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
    ) -> MetadataResponseTopic:
        row = MetadataResponseTopic(code, name, topic_id)
        self._response.topics.append(row)
        return row

    async def list_in_turns(self, topics: "Sequence[Topic]") -> "Large":
        await self._context.service.large.each(topics, self.show)
        return await self._finish_in_turns()

    async def find_in_turns(self, wanted: list[MetadataRequestTopic]) -> "Large":
        large = self._context.service.large
        unique: dict[tuple[bytes, str | None], MetadataRequestTopic] = {}
        for start in range(0, len(wanted), NAMES_PER_TURN):
            async with large.turn(0):
                unique |= _unique(wanted[start : start + NAMES_PER_TURN])
        await large.each(list(unique.values()), self.find)
        return await self._finish_in_turns()

    def finish(self) -> "MetadataResponse | Awaitable[MetadataResponse | Large]":
        """Describe what was found, at once if that is little and nothing is to be made."""
        if self._missing:
            return self._create_and_finish()
        if sum(topic.partition_count for _, topic in self._found) > ELEMENTS_AT_ONCE:
            return self._finish_in_turns()
        return self._finish_at_once()

    def _finish_at_once(self) -> MetadataResponse:
        for row, topic in self._found:
            row.partitions = _partitions(topic, 0, topic.partition_count)
        return _with_operations(self._request, self._response)

    async def _create_and_finish(self) -> "MetadataResponse | Large":
        await self._create()
        answer = self.finish()
        return await answer if isinstance(answer, Awaitable) else answer

    async def _finish_in_turns(self) -> "Large":
        if self._missing:
            await self._create()
        large = self._context.service.large
        for parts in _in_turns(self._found):
            async with large.turn(sum(end - start for _, _, start, end in parts)):
                for row, topic, start, end in parts:
                    row.partitions += _partitions(topic, start, end)
        return Large(_with_operations(self._request, self._response))

    async def _create(self) -> None:
        """Make the topics that are missing, as many as CreateTopics would at once; the others stay unknown."""
        broker = self._context.broker
        missing, self._missing = self._missing, []
        partitions_each = max(broker.settings.partition_count_default, 1)
        for row in missing[: max(PARTITIONS_PER_REQUEST_MAX // partitions_each, 1)]:
            assert row.name is not None
            try:
                topic = await broker.topics.ensure(broker.topic_name(row.name))
            except BrokerError as error:
                row.error_code = error_code(error)
            else:
                row.error_code, row.topic_id = ErrorCode.NONE, topic.topic_id
                self._found.append((row, topic))


def _in_turns(
    found: "Iterable[tuple[MetadataResponseTopic, Topic]]",
) -> "Iterator[list[tuple[MetadataResponseTopic, Topic, int, int]]]":
    """Which partitions to describe in each turn: (row, topic, first, end) of a few topics, or of a part of one."""
    parts: list[tuple[MetadataResponseTopic, Topic, int, int]] = []
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


def _partitions(topic: "Topic", start: int, end: int) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            ErrorCode.NONE, index, replicas[0], topic.leader_epoch(index), replicas, replicas
        )
        for index, replicas in enumerate(topic.replicas[start:end], start)
    ]
