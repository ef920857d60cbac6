"""SyncGroup: the leader brings the assignments, everybody takes its own.

Served: v0-5.  From v5 on the protocol's type and name are mandatory (KIP-559).
"""

from typing import TYPE_CHECKING, Final

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import SyncRequest, SyncResult
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, is_coordinator
from magnetar.protocols.kafka.registry import Parked
from magnetar.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "sync_group"
VERSIONS = (0, 5)

_PROTOCOL_SINCE: Final = 5


def handle(context: "RequestContext", request: SyncGroupRequest) -> "SyncGroupResponse | Parked":
    if not is_coordinator(context, request.group_id):
        return _response(SyncResult(GroupError.NOT_COORDINATOR))
    if context.api_version >= _PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return _response(SyncResult(GroupError.INCONSISTENT_GROUP_PROTOCOL))
    deferred = Parked()
    context.broker.groups.sync(
        SyncRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            assignments={one.member_id: one.assignment for one in request.assignments},
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
        ),
        lambda result: deferred.resolve(_response(result)),
    )
    return deferred


def _response(result: SyncResult) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=GROUP_ERROR_CODES[result.error],
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
