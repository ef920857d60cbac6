"""DeleteGroups: delete groups without members, and their offsets.  The server answers when that is durable.  Served:
v0-2.
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import delete_groups as codec
from magnetar.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

VERSIONS = (0, 2)


async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    response = DeleteGroupsResponse()
    for group_id in dict.fromkeys(request.groups_names):
        try:
            error = await context.cases.groups.delete(context.caller, context.node, group_id)
            code = GROUP_ERROR_CODES[error]
        except BrokerError as refusal:
            code = error_code(refusal)
        response.results.append(DeletableGroupResult(group_id, code))
    return response


API = Api.of(codec, VERSIONS, handle)
