"""DeleteGroups: delete groups without members, and their offsets.  Answered when that is durable.  Served:
v0-2.
"""

from typing import TYPE_CHECKING

from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, is_coordinator
from magnetar.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "delete_groups"
VERSIONS = (0, 2)


async def handle(context: "RequestContext", request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id in dict.fromkeys(request.groups_names):
        if is_coordinator(context, group_id):
            error = await context.broker.groups.delete(group_id)
        else:
            error = GroupError.NOT_COORDINATOR
        response.results.append(DeletableGroupResult(group_id, GROUP_ERROR_CODES[error]))
    return response
