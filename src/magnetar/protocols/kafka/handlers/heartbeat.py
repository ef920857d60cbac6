"""Heartbeat: a member lives, and learns whether it has to join again.  Served: v0-4."""

from typing import TYPE_CHECKING

from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, is_coordinator
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "heartbeat"
VERSIONS = (0, 4)


def handle(context: "RequestContext", request: HeartbeatRequest) -> HeartbeatResponse:
    if is_coordinator(context, request.group_id):
        error = context.broker.groups.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    else:
        error = GroupError.NOT_COORDINATOR
    return HeartbeatResponse(error_code=GROUP_ERROR_CODES[error])
