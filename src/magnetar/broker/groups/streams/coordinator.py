"""All streams groups: finds or creates the group of a heartbeat, and waits, if it must, until the group's epochs and
topology are stored.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from magnetar.broker.groups.configs import StreamsRules
from magnetar.broker.groups.consumer.checks import JOIN, LEAVE
from magnetar.broker.groups.consumer.environment import Environment
from magnetar.broker.groups.epochs import GROUP_OVERHEAD_BYTES, EpochGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.memory import claim
from magnetar.broker.groups.model import (
    DescribedStreamsGroup,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    Topology,
)
from magnetar.broker.groups.streams.checks import problem_of
from magnetar.broker.groups.streams.group import StreamsGroup, topology_size
from magnetar.broker.groups.streams.heartbeats import StreamsHeartbeats
from magnetar.broker.groups.streams.topics import InvalidTopology, configured


class Groups(Protocol):
    """All groups, of any protocol."""

    def find(self, group_id: str) -> Group | EpochGroup | None: ...

    def made_streams(self, group_id: str) -> StreamsGroup | str:
        """Create a group, or return why that is not possible."""
        ...


class StreamsGroups:
    """See the module's text.  `rules` returns the rules of a group."""

    def __init__(
        self,
        groups: Groups,
        environment: Environment,
        *,
        on_settled: Callable[[StreamsGroup], None],
        full_name: Callable[[str], str],
        rules: Callable[[str], StreamsRules],
    ) -> None:
        self._groups = groups
        self._catalogue = environment.catalogue
        self._memory = environment.memory
        self._background = environment.background
        self._full_name = full_name
        self._rules = StreamsHeartbeats(environment, on_settled=on_settled, rules=rules)

    def heartbeat(
        self, request: StreamsHeartbeat
    ) -> StreamsHeartbeatResult | Awaitable[StreamsHeartbeatResult]:
        """StreamsGroupHeartbeat: answered at once, unless it must wait for a write."""
        problem = problem_of(request) or self._problem_of(request.topology)
        if problem is not None:
            return StreamsHeartbeatResult(*problem)
        group = self._group(request)
        if isinstance(group, StreamsHeartbeatResult):
            return group
        if group.can_bump and group.topology is not None:
            return self._answered(group, request)
        return self._heartbeat_later(request)

    def _problem_of(self, topology: Topology | None) -> tuple[GroupError, str] | None:
        """The error of the topology with which a client wants to create a group; None if it is valid."""
        if topology is None:
            return None

        def count_of(name: str) -> int | None:
            found = self._catalogue.found(self._full_name(name))
            return None if found is None else found[1]

        try:
            configured(topology, count_of)
        except InvalidTopology as error:
            return GroupError.STREAMS_INVALID_TOPOLOGY, str(error)
        return None

    async def _heartbeat_later(self, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        while True:
            group = self._group(request)  # a client may have deleted it meanwhile
            if isinstance(group, StreamsHeartbeatResult):
                return group
            if group.topology is None:
                if request.topology is None:
                    return StreamsHeartbeatResult(
                        GroupError.UNKNOWN_MEMBER_ID, GroupError.UNKNOWN_MEMBER_ID.value
                    )
                if not group.memory.has_room(topology_size(request.topology)):
                    return StreamsHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)
                group.set_topology(request.topology)
            elif group.can_bump:
                return self._answered(group, request)
            if not await self._background.may_bump(group):
                return StreamsHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)

    def _answered(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        assert group.topology is not None, group.group_id
        if request.epoch != LEAVE:  # its answer has nothing of the topology
            request.check_topics(group.topology.names)
        result = self._rules.heartbeat(group, request)
        self._background.store_ahead(group)
        return result

    def _group(self, request: StreamsHeartbeat) -> StreamsGroup | StreamsHeartbeatResult:
        found = self._groups.find(request.group_id)
        if isinstance(found, StreamsGroup):
            claim(found, request.viewer)
            return found
        if request.epoch != JOIN:
            what = "There is no such group." if found is None else "The group is no streams group."
            return StreamsHeartbeatResult(GroupError.GROUP_ID_NOT_FOUND, what)
        if not self._memory.has_room(GROUP_OVERHEAD_BYTES, request.viewer.shares_as):
            return StreamsHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)
        made = self._groups.made_streams(request.group_id)
        if isinstance(made, str):
            return StreamsHeartbeatResult(GroupError.GROUP_ID_NOT_FOUND, made)
        claim(made, request.viewer)
        return made

    def describe(self, group_id: str) -> DescribedStreamsGroup:
        """State, topology and members; GROUP_ID_NOT_FOUND if the group does not exist, or is no streams group."""
        if not group_id:
            return DescribedStreamsGroup(GroupError.INVALID_GROUP_ID, group_id)
        group = self._groups.find(group_id)
        if not isinstance(group, StreamsGroup):
            return DescribedStreamsGroup(GroupError.GROUP_ID_NOT_FOUND, group_id)
        return DescribedStreamsGroup(
            GroupError.NONE,
            group_id,
            group.state,
            group.epoch,
            group.assignment_epoch,
            group.described_topology,
            (group.described(one) for one in list(group.members.values())),
        )
