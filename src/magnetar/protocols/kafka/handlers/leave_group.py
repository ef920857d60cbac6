"""LeaveGroup: members leave, or are removed by an administrator.

Served: v0-5 (many members v3+; reasons v5+, KIP-800).  Up to v2 there is one member, and its error is the
response's.
"""

from typing import TYPE_CHECKING, Final

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import LeavingMember
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, is_coordinator
from magnetar.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "leave_group"
VERSIONS = (0, 5)

_MANY_SINCE: Final = 3


def handle(context: "RequestContext", request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.api_version >= _MANY_SINCE:
        members = [LeavingMember(m.member_id, m.group_instance_id, m.reason or "") for m in request.members]
    else:
        members = [LeavingMember(request.member_id)]
    if is_coordinator(context, request.group_id):
        error, errors = context.broker.groups.leave(request.group_id, members)
    else:
        error, errors = GroupError.NOT_COORDINATOR, []
    if context.api_version < _MANY_SINCE and error is GroupError.NONE:
        error = errors[0]
    return LeaveGroupResponse(
        error_code=GROUP_ERROR_CODES[error],
        members=[
            MemberResponse(member.member_id, member.group_instance_id, GROUP_ERROR_CODES[own])
            for member, own in zip(members, errors, strict=False)  # no rows when the whole request failed
        ],
    )
