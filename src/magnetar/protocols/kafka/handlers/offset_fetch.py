"""OffsetFetch: how far groups have got.  What was never committed is offset -1 without an error.

Served: v1-10 (all topics v2+, `require_stable` v7+, many groups v8+, member id and epoch v9+, topic ids
v10+). With `require_stable` an offset that an open transaction may move is UNSTABLE_OFFSET_COMMIT (KIP-447).  A member
of the consumer protocol gets STALE_MEMBER_EPOCH for an epoch that is not its own (KIP-848).
"""

from collections.abc import Awaitable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.usecases.offsets import Committed
from magnetar.ledger.cursor import Cursor
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import offset_fetch as codec
from magnetar.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from magnetar.wire.kafka.runtime import ZERO_UUID

VERSIONS = (1, 10)

_GROUP_ERROR_SINCE: Final = 2
_MANY_GROUPS_SINCE: Final = 8
_TOPIC_IDS_SINCE: Final = 10
_GROUPS_AT_ONCE: Final = 50


@dataclass(slots=True)
class _Topic:
    """One topic of the answer, before it takes the form of a version."""

    name: str
    topic_id: bytes
    cursors: Mapping[int, Cursor | None]  # by partition
    error: ErrorCode = ErrorCode.NONE
    unstable: Set[int] = frozenset()  # partitions whose offset an open transaction may move


def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | Awaitable[Large]:
    if context.api_version >= _MANY_GROUPS_SINCE:
        if len(request.groups) > _GROUPS_AT_ONCE:
            return _answer_in_turns(context, request)
        return OffsetFetchResponse(
            groups=[_group(context, group, request.require_stable) for group in request.groups]
        )
    error, topics = _fetch(context, request.group_id, request.topics, request.require_stable)
    if error != ErrorCode.NONE and context.api_version < _GROUP_ERROR_SINCE:
        topics = [
            _Topic(topic.name, ZERO_UUID, dict.fromkeys(topic.partition_indexes), error)
            for topic in request.topics or ()
        ]
    return OffsetFetchResponse(
        topics=[OffsetFetchResponseTopic(topic.name, _partitions(topic)) for topic in topics],
        error_code=error,
    )


async def _answer_in_turns(context: RequestContext, request: OffsetFetchRequest) -> Large:
    """As `handle`, with others having their turn after every few groups."""
    response = OffsetFetchResponse()
    large = context.service.large
    for start in range(0, len(request.groups), _GROUPS_AT_ONCE):
        some = request.groups[start : start + _GROUPS_AT_ONCE]
        async with large.turn(len(some)):
            response.groups += [_group(context, group, request.require_stable) for group in some]
    return Large(response)


def _group(
    context: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    member = group.member_id, group.member_epoch
    error, topics = _fetch(context, group.group_id, group.topics, require_stable, member)
    rows = [
        OffsetFetchResponseTopics(topic.name, topic.topic_id, _many_partitions(topic)) for topic in topics
    ]
    return OffsetFetchResponseGroup(group.group_id, rows, error)


def _fetch(
    context: RequestContext,
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    require_stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[ErrorCode, list[_Topic]]:
    offsets = context.cases.offsets
    try:
        member_id, epoch = member
        committed = offsets.fetch(
            context.caller,
            context.node,
            group_id,
            stable=require_stable,
            member_id=member_id,
            epoch=epoch,
        )
    except BrokerError as refusal:
        return error_code(refusal), []
    if committed.error is not GroupError.NONE:
        return GROUP_ERROR_CODES[committed.error], []
    if topics is None:
        return ErrorCode.NONE, [
            _Topic(
                context.cases.kafka_names.shown(TopicName.parse(one.name)),
                one.topic_id,
                one.cursors,
                unstable=_unstable(committed.pending, one.name),
            )
            for one in offsets.every_shown(context.caller, committed)
        ]
    return ErrorCode.NONE, [_one_topic(context, committed, topic) for topic in topics]


def _unstable(pending: Set[tuple[str, int]], full: str) -> Set[int]:
    return {index for topic, index in pending if topic == full} if pending else frozenset()


def _one_topic(
    context: RequestContext,
    committed: Committed,
    wanted: OffsetFetchRequestTopic | OffsetFetchRequestTopics,
) -> _Topic:
    topic_id = ZERO_UUID
    key: str | bytes = wanted.name
    if context.api_version >= _TOPIC_IDS_SINCE and isinstance(wanted, OffsetFetchRequestTopics):
        key = topic_id = wanted.topic_id
    full = context.cases.offsets.shown(context.caller, key)
    if isinstance(full, str):
        cursors = committed.cursors.get(full, {})
        return _Topic(
            wanted.name,
            topic_id,
            {index: cursors.get(index) for index in wanted.partition_indexes},
            unstable=_unstable(committed.pending, full),
        )
    # Of a name that no topic can have nothing was ever committed.
    code = ErrorCode.NONE if isinstance(full, InvalidTopicName) else error_code(full)
    return _Topic(wanted.name, topic_id, dict.fromkeys(wanted.partition_indexes), code)


def _error(topic: _Topic, index: int) -> ErrorCode:
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if index in topic.unstable else topic.error


def _many_partitions(topic: _Topic) -> list[OffsetFetchResponsePartitions]:
    return [
        OffsetFetchResponsePartitions(index, -1, -1, "", _error(topic, index))
        if cursor is None or index in topic.unstable
        else OffsetFetchResponsePartitions(
            index, cursor.committed_offset, cursor.leader_epoch, cursor.metadata
        )
        for index, cursor in topic.cursors.items()
    ]


def _partitions(topic: _Topic) -> list[OffsetFetchResponsePartition]:
    return [
        OffsetFetchResponsePartition(index, -1, -1, "", _error(topic, index))
        if cursor is None or index in topic.unstable
        else OffsetFetchResponsePartition(
            index, cursor.committed_offset, cursor.leader_epoch, cursor.metadata
        )
        for index, cursor in topic.cursors.items()
    ]


API = Api.of(codec, VERSIONS, handle)
