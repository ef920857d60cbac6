"""ListGroups: the groups that the node coordinates, by state (v4+, KIP-518) and type (v5+).  Served: v0-5.

All groups are of type "classic".  A client that wants all of them asks every node.
"""

from typing import TYPE_CHECKING

from magnetar.protocols.kafka.groups import is_coordinator
from magnetar.wire.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "list_groups"
VERSIONS = (0, 5)


def handle(context: "RequestContext", request: ListGroupsRequest) -> ListGroupsResponse:
    return ListGroupsResponse(
        groups=[
            ListedGroup(group.group_id, group.protocol_type, group.state.value, group.group_type)
            for group in context.broker.groups.listed(request.states_filter, request.types_filter)
            if is_coordinator(context, group.group_id)
        ]
    )
