"""DescribeGroups: state, members and assignments.

Served: v0-6.  A group that does not exist is a Dead group; from v6 on it is GROUP_ID_NOT_FOUND as well
(KIP-1043). There is no authorizer: who asks for the authorized operations may do all that a group knows.
"""

from typing import TYPE_CHECKING, Final

from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, is_coordinator
from magnetar.protocols.kafka.large import Pieces
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "describe_groups"
VERSIONS = (0, 6)
PIECES = Pieces("groups", "", "groups")

_NOT_FOUND_SINCE: Final = 6
# Bits are numbers of org.apache.kafka.common.acl.AclOperation: read, delete, describe, describe and alter
# configs.
_ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def handle(context: "RequestContext", request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse(groups=[_describe(context, group_id) for group_id in request.groups])
    if request.include_authorized_operations:
        for group in response.groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = _ALL_GROUP_OPERATIONS
    return response


def _describe(context: "RequestContext", group_id: str) -> DescribedGroup:
    if not is_coordinator(context, group_id):
        return DescribedGroup(ErrorCode.NOT_COORDINATOR, GroupError.NOT_COORDINATOR.value, group_id)
    found = context.broker.groups.describe(group_id)
    if found.error is not GroupError.NONE and context.api_version < _NOT_FOUND_SINCE:
        return DescribedGroup(group_id=group_id, group_state=found.state.value)
    missing = found.error is GroupError.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        GROUP_ERROR_CODES[found.error],
        f"Group {group_id} not found." if missing else found.error.value or None,
        group_id,
        found.state.value,
        found.protocol_type,
        found.protocol_name,
        [
            DescribedGroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in found.members
        ],
    )
