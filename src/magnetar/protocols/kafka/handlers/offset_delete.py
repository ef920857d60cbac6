"""OffsetDelete: delete a group's offsets of partitions that it no longer consumes (KIP-496).  Served: v0."""

from collections.abc import Coroutine, Sequence
from typing import Any

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, topic_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import offset_delete as codec
from magnetar.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]:
    if not request.group_id:
        return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
    try:
        found = context.cases.offsets.to_delete(
            context.caller, context.node, request.group_id, [topic.name for topic in request.topics]
        )
    except BrokerError as refusal:
        return OffsetDeleteResponse(error_code(refusal))
    return _delete(context, request, found)


async def _delete(
    context: RequestContext, request: OffsetDeleteRequest, found: Sequence[str | BrokerError]
) -> OffsetDeleteResponse:
    response = OffsetDeleteResponse()
    partitions: list[tuple[str, int]] = []
    rows: list[OffsetDeleteResponsePartition] = []  # of `partitions`, in the same order
    for topic, full in zip(request.topics, found, strict=True):
        code = topic_code(full)
        answers = [OffsetDeleteResponsePartition(one.partition_index, code) for one in topic.partitions]
        response.topics.append(OffsetDeleteResponseTopic(topic.name, answers))
        if isinstance(full, str):
            rows += answers
            partitions += [(full, one.partition_index) for one in topic.partitions]
    error, errors = await context.cases.offsets.delete(context.caller, request.group_id, partitions)
    if error is not GroupError.NONE:
        return OffsetDeleteResponse(GROUP_ERROR_CODES[error])
    for row, own in zip(rows, errors, strict=True):
        row.error_code = GROUP_ERROR_CODES[own]
    return response


API = Api.of(codec, VERSIONS, handle)
