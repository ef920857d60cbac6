"""Kafka's groups: their members, and their administration.

`node` is the node that a client asks: it answers for the groups that it coordinates.
"""

from collections.abc import Iterable, Iterator, Sequence

from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    DescribedGroup,
    JoinReply,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, group_resource


class GroupCases:
    """See the module's text.  What a group answers is a `GroupError`, which need not be one."""

    def __init__(self, access: AccessControl, nodes: Nodes, groups: GroupCoordinator) -> None:
        self._access = access
        self._nodes = nodes
        self._groups = groups

    # --- members -----------------------------------------------------------------------------------------------------

    def join(self, caller: Caller, node: Node, request: JoinRequest, reply: JoinReply) -> None:
        """Join, or join again; `reply` is called once, now or later.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(request.group_id))
        self._nodes.check_coordinator(node, request.group_id)
        self._groups.join(request, reply)

    def sync(
        self,
        caller: Caller,
        node: Node,
        request: SyncRequest,
        reply: SyncReply,
        *,
        must_name_protocol: bool,
    ) -> None:
        """Bring or take the assignments; `reply` is called once, now or later.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(request.group_id))
        self._nodes.check_coordinator(node, request.group_id)
        if must_name_protocol and None in (request.protocol_type, request.protocol_name):
            reply(SyncResult(GroupError.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self._groups.sync(request, reply)

    def heartbeat(
        self,
        caller: Caller,
        node: Node,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
    ) -> GroupError:
        """A member lives.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return self._groups.heartbeat(group_id, member_id, generation, instance_id)

    def leave(
        self, caller: Caller, node: Node, group_id: str, members: Sequence[LeavingMember]
    ) -> tuple[GroupError, list[GroupError]]:
        """Members leave: what is wrong with the request as a whole, and one answer for each member.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return self._groups.leave(group_id, members)

    # --- administration ----------------------------------------------------------------------------------------------

    def describe(self, caller: Caller, node: Node, group_id: str) -> DescribedGroup:
        """State and members.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return self._groups.describe(group_id)

    def operations(self, caller: Caller, group_id: str) -> list[Operation]:
        """What the caller may do to a group."""
        return self._access.permitted(caller, group_resource(group_id))

    def list(
        self, caller: Caller, node: Node, states: Iterable[str], types: Iterable[str]
    ) -> Iterator[ListedGroup]:
        """The node's groups, of these states and types: all if the caller may describe the cluster, otherwise those
        that it may describe.
        """
        sees_all = self._access.permits(caller, Operation.DESCRIBE, CLUSTER)
        for group in self._groups.listed(states, types):
            if self._nodes.coordinates(node, group.group_id) and (
                sees_all or self._access.permits(caller, Operation.DESCRIBE, group_resource(group.group_id))
            ):
                yield group

    async def delete(self, caller: Caller, node: Node, group_id: str) -> GroupError:
        """Delete a group without members, and its offsets; NONE once that is durable.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DELETE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return await self._groups.delete(group_id)
