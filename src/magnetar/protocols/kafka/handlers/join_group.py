"""JoinGroup: a member joins, or joins again.  The server answers when all members have joined, or when their time is
over.

Served: v0-9 (MEMBER_ID_REQUIRED v4+, KIP-394; static members v5+, KIP-345; reasons v8+; skipping the assignment v9+).
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import JoinRequest, JoinResult
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api, Parked
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import join_group as codec
from magnetar.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

VERSIONS = (0, 9)

_REBALANCE_TIMEOUT_SINCE: Final = 1
_KNOWN_MEMBER_ID_SINCE: Final = 4
_NULL_PROTOCOL_SINCE: Final = 7
_SKIP_ASSIGNMENT_SINCE: Final = 9


def handle(context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Parked:
    version = context.api_version
    own_timeout = version >= _REBALANCE_TIMEOUT_SINCE
    deferred = Parked()
    wanted = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if own_timeout else request.session_timeout_ms,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # the JVM's form of addresses, which tools expect
        group_instance_id=request.group_instance_id,
        reason=request.reason or "",
        require_known_member_id=version >= _KNOWN_MEMBER_ID_SINCE,
        supports_skip_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
        viewer=context.cases.groups.viewer(context.caller),
    )

    def reply(result: JoinResult) -> None:
        deferred.resolve(_response(version, result, GROUP_ERROR_CODES[result.error]))

    try:
        context.cases.groups.join(context.caller, context.node, wanted, reply)
    except BrokerError as refusal:
        nothing = JoinResult(GroupError.NONE, request.member_id)
        return _response(version, nothing, error_code(refusal))
    return deferred


def _response(version: int, result: JoinResult, code: ErrorCode) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        error_code=code,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=name if name is not None or version >= _NULL_PROTOCOL_SINCE else "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata)
            for member in result.members
        ],
    )


API = Api.of(codec, VERSIONS, handle)
