"""Kafka's groups: their members, and their administration.

`node` is the node that the client asked.  It answers for the groups that it coordinates.
"""

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import replace

from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    ShareHeartbeat,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from magnetar.broker.groups.viewer import Viewer
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    group_resource,
    topic_resource,
)
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.usecases.known_groups import KnownGroups


class GroupCases:
    """See the module's text.  Groups answer with a `GroupError`, which also has a value for success."""

    def __init__(
        self,
        access: AccessControl,
        nodes: Nodes,
        groups: GroupCoordinator,
        known: KnownGroups,
        kafka_topics: KafkaTopics,
    ) -> None:
        self._access = access
        self._nodes = nodes
        self._groups = groups
        self._known = known
        self._kafka_topics = kafka_topics

    # --- members -----------------------------------------------------------------------------------------------------

    def viewer(self, caller: Caller) -> Viewer:
        """The caller as a request of a member shows it: its rights decide what the member gets."""
        access = self._access
        host = caller.host if access.tells_hosts_apart else ""

        def may_see(topic: str) -> bool:
            return access.permits(caller, Operation.DESCRIBE, topic_resource(topic))

        def is_current() -> bool:
            return bool(host) or not access.tells_hosts_apart

        return Viewer(f"{caller.principal} {caller.pipeline}", host, may_see, is_current)

    def join(self, caller: Caller, node: Node, request: JoinRequest, reply: JoinReply) -> None:
        """Join, or join again; `reply` is called once, now or later.  A caller that has lost the right meanwhile does
        not learn what others say of themselves: it is no member.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        group = group_resource(request.group_id)
        self._access.require(caller, Operation.READ, group)
        self._nodes.check_coordinator(node, request.group_id)

        def answer(result: JoinResult) -> None:
            if not self._access.permits(caller, Operation.READ, group):
                result = JoinResult(GroupError.UNKNOWN_MEMBER_ID, request.member_id)
            reply(result)

        self._groups.join(request, answer)

    def sync(
        self,
        caller: Caller,
        node: Node,
        request: SyncRequest,
        reply: SyncReply,
        *,
        must_name_protocol: bool,
    ) -> None:
        """Bring or fetch the assignments; `reply` is called once, now or later, as by `join`.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        group = group_resource(request.group_id)
        self._access.require(caller, Operation.READ, group)
        self._nodes.check_coordinator(node, request.group_id)

        def answer(result: SyncResult) -> None:
            if not self._access.permits(caller, Operation.READ, group):
                result = SyncResult(GroupError.UNKNOWN_MEMBER_ID)
            reply(result)

        if must_name_protocol and None in (request.protocol_type, request.protocol_name):
            reply(SyncResult(GroupError.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self._groups.sync(request, answer)

    def heartbeat(
        self,
        caller: Caller,
        node: Node,
        group_id: str,
        member_id: str,
        generation: int,
        instance_id: str | None,
    ) -> GroupError:
        """A member reports that it is alive.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return self._groups.heartbeat(group_id, member_id, generation, instance_id)

    def leave(
        self, caller: Caller, node: Node, group_id: str, members: Sequence[LeavingMember]
    ) -> tuple[GroupError, list[GroupError]]:
        """Members leave.  Returns the error of the whole request, and one answer for each member.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        return self._groups.leave(group_id, members)

    # --- members of the consumer protocol ----------------------------------------------------------------------------

    @property
    def rights_changes(self) -> int:
        """How often rights have changed: for a heartbeat, as they were before `subscribed`."""
        return self._groups.rights_changes

    def subscribed(self, caller: Caller, node: Node, group_id: str, names: Iterable[str]) -> list[str]:
        """The full names of the topics that a member subscribes to; the caller may describe all of them.

        Raises:
            GroupNotAuthorized, NotCoordinator, TopicNotAuthorized
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        topics = [self._kafka_topics.full_name_or_itself(name) for name in names]
        for topic in topics:
            self._access.require(caller, Operation.DESCRIBE, topic_resource(topic))
        return topics

    def consumer_heartbeat(
        self, caller: Caller, node: Node, request: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult | Awaitable[ConsumerHeartbeatResult]:
        """A member joins, stays or leaves.  Its topics come from `subscribed`.  It gets partitions only of topics that
        the caller may describe, now and after changes of rights.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.READ, group_resource(request.group_id))
        self._nodes.check_coordinator(node, request.group_id)
        return self._groups.consumers.heartbeat(request)

    # --- members of share groups -------------------------------------------------------------------------------------

    def share_heartbeat(
        self, caller: Caller, node: Node, request: ShareHeartbeat
    ) -> ConsumerHeartbeatResult | Awaitable[ConsumerHeartbeatResult]:
        """As `consumer_heartbeat`."""
        self._access.require(caller, Operation.READ, group_resource(request.group_id))
        self._nodes.check_coordinator(node, request.group_id)
        return self._groups.sharing.heartbeat(request)

    # --- administration ----------------------------------------------------------------------------------------------

    def describe(self, caller: Caller, node: Node, group_id: str) -> DescribedGroup:
        """State and members.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        if not self._known.is_shown(caller, group_id):
            return DescribedGroup(GroupError.GROUP_ID_NOT_FOUND, group_id)
        return self._groups.describe(group_id)

    def describe_consumers(self, caller: Caller, node: Node, group_id: str) -> DescribedConsumerGroup:
        """State and members of a group of the consumer protocol.

        Reading the members raises TopicNotAuthorized at a topic that the caller may not describe, without its name.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        found = self._groups.consumers.describe(group_id)
        return replace(found, members=self._permitted(caller, found.members))

    def describe_sharers(self, caller: Caller, node: Node, group_id: str) -> DescribedConsumerGroup:
        """State and members of a share group.  As `describe_consumers`."""
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        self._nodes.check_coordinator(node, group_id)
        found = self._groups.sharing.describe(group_id)
        return replace(found, members=self._permitted(caller, found.members))

    def _permitted(self, caller: Caller, members: Iterable[DescribedConsumer]) -> Iterator[DescribedConsumer]:
        permitted: set[str] = set()
        for member in members:
            assigned = (name for _, name, _ in (*member.assigned, *member.target))
            for topic in {*member.topics, *assigned} - permitted:
                self._access.require_unnamed(caller, Operation.DESCRIBE, topic_resource(topic))
                permitted.add(topic)
            yield member

    def operations(self, caller: Caller, group_id: str) -> list[Operation]:
        """What the caller may do with a group."""
        return self._access.permitted(caller, group_resource(group_id))

    def list(
        self, caller: Caller, node: Node, states: Iterable[str], types: Iterable[str]
    ) -> Iterator[ListedGroup]:
        """The node's groups with these states and types: all if the caller may describe the cluster, otherwise those
        that it may describe and know of.
        """
        sees_all = self._access.permits(caller, Operation.DESCRIBE, CLUSTER)
        for group in self._groups.listed(states, types):
            if self._nodes.coordinates(node, group.group_id) and (
                sees_all
                or (
                    self._access.permits(caller, Operation.DESCRIBE, group_resource(group.group_id))
                    and self._known.is_shown(caller, group.group_id)
                )
            ):
                yield group

    async def delete(self, caller: Caller, node: Node, group_id: str) -> GroupError:
        """Delete a group without members, and its offsets; NONE once that is durable.

        In the group's own namespace the right to the group is enough to delete its offsets, as in Kafka.  In another
        namespace they are a subscription of that namespace, which stays if the caller may not drop it.

        Raises:
            GroupNotAuthorized, NotCoordinator
        """
        async with self._access.change(
            caller, Operation.DELETE, group_resource(group_id), Change.GROUP_DELETE
        ) as recording:
            self._nodes.check_coordinator(node, group_id)
            error = GroupError.GROUP_ID_NOT_FOUND
            if self._known.is_shown(caller, group_id):
                error = await self._groups.delete(group_id, self._known.kept(caller, group_id))
            if error is not GroupError.NONE:
                recording.fails(error.name)
            return error
