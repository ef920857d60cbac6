"""LeaveGroup: members leave, or are removed by an administrator.

Served: v0-5 (many members v3+; reasons v5+, KIP-800).  Up to v2 there is one member, and its error is the
response's.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import LeavingMember
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import leave_group as codec
from magnetar.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

VERSIONS = (0, 5)

_MANY_SINCE: Final = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.api_version >= _MANY_SINCE:
        members = [LeavingMember(m.member_id, m.group_instance_id, m.reason or "") for m in request.members]
    else:
        members = [LeavingMember(request.member_id)]
    try:
        error, errors = context.cases.groups.leave(context.caller, context.node, request.group_id, members)
    except BrokerError as refusal:
        return LeaveGroupResponse(error_code=error_code(refusal))
    if context.api_version < _MANY_SINCE and error is GroupError.NONE:
        error = errors[0]
    return LeaveGroupResponse(
        error_code=GROUP_ERROR_CODES[error],
        members=[
            MemberResponse(member.member_id, member.group_instance_id, GROUP_ERROR_CODES[own])
            for member, own in zip(members, errors, strict=False)  # no rows if the whole request failed
        ],
    )


API = Api.of(codec, VERSIONS, handle)
