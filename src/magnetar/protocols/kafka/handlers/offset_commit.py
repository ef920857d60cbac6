"""OffsetCommit: how far a group has got.  Answered when the offsets are durable, all of them in one step.

Served: v2-10 (retention v2-4, leader epochs v6+, static members v7+, topic ids v10+).
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.errors import UnknownTopicId
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.offsets import CommitRequest, OffsetToCommit
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, full_name, is_coordinator
from magnetar.protocols.kafka.large import Pieces
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "offset_commit"
VERSIONS = (2, 10)
PIECES = Pieces("topics", "partitions", "topics")

_TOPIC_IDS_SINCE: Final = 10


def handle(
    context: "RequestContext", request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    response = OffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    rows: list[OffsetCommitResponsePartition] = []  # of `offsets`, in the same order
    coordinates = is_coordinator(context, request.group_id)
    for topic in request.topics:
        full, error = _resolve(context, topic)
        if not coordinates:
            full, error = None, ErrorCode.NOT_COORDINATOR
        answers = [OffsetCommitResponsePartition(one.partition_index, error) for one in topic.partitions]
        response.topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
        if full is not None:
            rows += answers
            offsets += [
                OffsetToCommit(
                    full,
                    one.partition_index,
                    one.committed_offset,
                    one.committed_metadata or "",
                    one.committed_leader_epoch,
                )
                for one in topic.partitions
            ]
    if not offsets:
        return response
    answer = context.broker.groups.offsets.commit(
        CommitRequest(
            request.group_id,
            offsets,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            request.retention_time_ms if request.retention_time_ms >= 0 else None,
        )
    )
    return _respond(response, rows, answer)


def _resolve(context: "RequestContext", topic: OffsetCommitRequestTopic) -> tuple[str | None, ErrorCode]:
    if context.api_version >= _TOPIC_IDS_SINCE:
        try:
            return context.broker.topics.get_by_id(topic.topic_id).name.full, ErrorCode.NONE
        except UnknownTopicId:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
    return full_name(context, topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _respond(
    response: OffsetCommitResponse,
    rows: list[OffsetCommitResponsePartition],
    answer: Coroutine[Any, Any, list[GroupError]],
) -> OffsetCommitResponse:
    for row, error in zip(rows, await answer, strict=True):
        row.error_code = GROUP_ERROR_CODES[error]
    return response
