"""Heartbeat: a member is alive, and learns whether it has to join again.  Served: v0-4."""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import heartbeat as codec
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSIONS = (0, 4)


def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    try:
        error = context.cases.groups.heartbeat(
            context.caller,
            context.node,
            request.group_id,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
        )
    except BrokerError as refusal:
        return HeartbeatResponse(error_code=error_code(refusal))
    return HeartbeatResponse(error_code=GROUP_ERROR_CODES[error])


API = Api.of(codec, VERSIONS, handle)
