"""SyncGroup: the leader sends the assignments, and each member gets its own.

Served: v0-5.  From v5 on the protocol's type and name are required (KIP-559).
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.model import SyncRequest, SyncResult
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api, Parked
from magnetar.wire.kafka.messages import sync_group as codec
from magnetar.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

VERSIONS = (0, 5)

_PROTOCOL_SINCE: Final = 5


def handle(context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Parked:
    deferred = Parked()
    wanted = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id,
        assignments={one.member_id: one.assignment for one in request.assignments},
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
    )
    try:
        context.cases.groups.sync(
            context.caller,
            context.node,
            wanted,
            lambda result: deferred.resolve(_response(result)),
            must_name_protocol=context.api_version >= _PROTOCOL_SINCE,
        )
    except BrokerError as refusal:
        return SyncGroupResponse(error_code=error_code(refusal))
    return deferred


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=GROUP_ERROR_CODES[result.error],
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


API = Api.of(codec, VERSIONS, handle)
