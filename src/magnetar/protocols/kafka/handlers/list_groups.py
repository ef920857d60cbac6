"""ListGroups: the groups that the node coordinates, by state (v4+, KIP-518) and type (v5+).  Served: v0-5.

Types are "classic", "consumer" (KIP-848), "share" (KIP-932) and "streams" (KIP-1071).  A client that wants all groups
asks every node.
"""

from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import list_groups as codec
from magnetar.wire.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

VERSIONS = (0, 5)


def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state.value, group.group_type)
            for group in context.cases.groups.list(
                context.caller, context.node, request.states_filter, request.types_filter
            )
        ]
    )


API = Api.of(codec, VERSIONS, handle)
