"""OffsetDelete: forget how far a group has got in partitions that it no longer consumes (KIP-496).
Served: v0.
"""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, full_name, is_coordinator
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "offset_delete"
VERSIONS = (0, 0)


def handle(
    context: "RequestContext", request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]:
    if not request.group_id:
        return OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID)
    if not is_coordinator(context, request.group_id):
        return OffsetDeleteResponse(ErrorCode.NOT_COORDINATOR)
    return _delete(context, request)


async def _delete(context: "RequestContext", request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    response = OffsetDeleteResponse()
    partitions: list[tuple[str, int]] = []
    rows: list[OffsetDeleteResponsePartition] = []  # of `partitions`, in the same order
    for topic in request.topics:
        full = full_name(context, topic.name)
        answers = [
            OffsetDeleteResponsePartition(one.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for one in topic.partitions
        ]
        response.topics.append(OffsetDeleteResponseTopic(topic.name, answers))
        if full is not None:
            rows += answers
            partitions += [(full, one.partition_index) for one in topic.partitions]
    error, errors = await context.broker.groups.offsets.delete(request.group_id, partitions)
    if error is not GroupError.NONE:
        return OffsetDeleteResponse(GROUP_ERROR_CODES[error])
    for row, own in zip(rows, errors, strict=True):
        row.error_code = GROUP_ERROR_CODES[own]
    return response
