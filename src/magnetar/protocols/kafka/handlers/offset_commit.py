"""OffsetCommit: store how far a group has got.  The server answers when the offsets are durable, all of them in one
step.

Served: v2-10 (retention v2-4, leader epochs v6+, static members v7+, members of the consumer protocol v9+, topic ids
v10+).  If such a member's epoch is old, it may still commit what it has held since then (KIP-1251).
"""

from collections.abc import Coroutine
from typing import Any, Final

from magnetar.base.errors import BrokerError, kept
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, topic_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import offset_commit as codec
from magnetar.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = (2, 10)
PIECES = Pieces("topics", "partitions", "topics")

_EPOCHS_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 10


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    try:
        found = context.cases.offsets.to_commit(
            context.caller,
            context.node,
            request.group_id,
            [topic.topic_id if by_id else topic.name for topic in request.topics],
        )
    except BrokerError as refusal:
        found = [kept(refusal)] * len(request.topics)
    response = OffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    rows: list[OffsetCommitResponsePartition] = []  # of `offsets`, in the same order
    for topic, full in zip(request.topics, found, strict=True):
        code = topic_code(full)
        answers = [OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions]
        response.topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
        if isinstance(full, str):
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
    answer = context.cases.offsets.commit(
        context.caller,
        CommitRequest(
            request.group_id,
            offsets,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            request.retention_time_ms if request.retention_time_ms >= 0 else None,
            context.api_version >= _EPOCHS_SINCE,
        ),
    )
    return _respond(response, rows, answer)


async def _respond(
    response: OffsetCommitResponse,
    rows: list[OffsetCommitResponsePartition],
    answer: Coroutine[Any, Any, list[GroupError]],
) -> OffsetCommitResponse:
    for row, error in zip(rows, await answer, strict=True):
        row.error_code = GROUP_ERROR_CODES[error]
    return response


API = Api.of(codec, VERSIONS, handle, PIECES)
