"""DescribeGroups: state, members and assignments.

Served: v0-6.  The answer shows a group that does not exist as Dead, from v6 on with GROUP_ID_NOT_FOUND (KIP-1043), and
so a group of the consumer protocol, which ConsumerGroupDescribe shows.  A group that the request names several times
is described once.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, LARGE_MEMBERS
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.permissions import bits
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_groups as codec
from magnetar.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

VERSIONS = (0, 6)

_NOT_FOUND_SINCE: Final = 6


async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse | Large:
    response = DescribeGroupsResponse()
    for group_id in dict.fromkeys(request.groups):
        async with context.service.large.turn(1):
            group = _describe(context, group_id)
        response.groups.append(group)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = bits(context.cases.groups.operations(context.caller, group_id))
    members_count = sum(len(group.members) for group in response.groups)
    return Large(response) if members_count > LARGE_MEMBERS else response


def _describe(context: RequestContext, group_id: str) -> DescribedGroup:
    try:
        found = context.cases.groups.describe(context.caller, context.node, group_id)
    except BrokerError as refusal:
        return DescribedGroup(error_code(refusal), str(refusal), group_id)
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


API = Api.of(codec, VERSIONS, handle)
