"""All groups of the consumer protocol: it finds or creates the group that a heartbeat names, waits for its epochs if
it must, and has patterns resolved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from magnetar.base.clock import wait_at_most
from magnetar.broker.groups.configs import Timing
from magnetar.broker.groups.consumer.assignors import ASSIGNORS, Assignor
from magnetar.broker.groups.consumer.checks import JOIN, problem_of
from magnetar.broker.groups.consumer.classic_members import ClassicMembers
from magnetar.broker.groups.consumer.environment import Environment
from magnetar.broker.groups.consumer.group import AssignedGroup, ConsumerGroup
from magnetar.broker.groups.consumer.heartbeats import Heartbeats
from magnetar.broker.groups.consumer.patterns import Pattern, Resolver
from magnetar.broker.groups.epochs import GROUP_OVERHEAD_BYTES, EpochGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.memory import claim
from magnetar.broker.groups.model import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumerGroup,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
)

log: Final = logging.getLogger(__name__)

TASKS_MAX: Final = 1_000  # patterns that wait to be resolved, and targets that wait to be computed
PATTERN_WAIT_S: Final = 1.0  # how long a heartbeat waits for its pattern's topics; else a later one gets them


class Groups(Protocol):
    """All groups, of either protocol."""

    def find(self, group_id: str) -> Group | EpochGroup | None: ...

    def made_consumer(self, group_id: str) -> ConsumerGroup | str:
        """Create a group, if needed in the place of a classic one, whose members it takes over; or return why that is
        not possible.
        """
        ...


class ConsumerGroups:
    """See the module's text.  `timing` returns the timing of a group."""

    def __init__(
        self,
        groups: Groups,
        environment: Environment,
        *,
        on_settled: Callable[[AssignedGroup], None],
        goes_back: Callable[[AssignedGroup], bool],
        full_name: Callable[[str], str],
        timing: Callable[[str], Timing],
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._settings = environment.settings
        self._catalogue = catalogue = environment.catalogue
        self._memory = environment.memory
        self._rules = Heartbeats(
            environment,
            members_max=environment.settings.group_consumer_max_size,
            assignor=self._assignor,
            on_settled=on_settled,
            goes_back=goes_back,
            timing=timing,
            new_id=new_id,
        )
        self._classic = ClassicMembers(self._rules, catalogue, full_name, new_id=new_id)
        self._goes_back = goes_back
        self._clock = environment.clock
        self._resolver = Resolver(environment.clock, catalogue)
        self._background = environment.background
        self._tasks = environment.background.tasks

    def _assignor(self, group: AssignedGroup) -> Assignor:
        return ASSIGNORS[group.preferred_assignor(self._settings.group_consumer_assignors)]

    async def settled(self) -> None:
        """Return when no target is being computed."""
        await self._tasks.ended()

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult | Awaitable[ConsumerHeartbeatResult]:
        """ConsumerGroupHeartbeat: answered at once, unless it must wait for the group's epochs or a pattern."""
        problem = problem_of(request, self._settings.group_consumer_assignors)
        if problem is not None:
            return ConsumerHeartbeatResult(*problem)
        group = self._group(request)
        if isinstance(group, ConsumerHeartbeatResult):
            return group
        if not group.can_bump or self._lacks_pattern(group, request):
            return self._heartbeat_later(request)
        return self._answered(group, request)

    @staticmethod
    def _lacks_pattern(group: ConsumerGroup, request: ConsumerHeartbeat) -> bool:
        """Whether a heartbeat, also of a new member, has a pattern that no member of the group has."""
        if not request.pattern or (request.epoch != JOIN and request.member_id not in group.members):
            return False
        return group.pattern(request.pattern, request.viewer) is None

    @staticmethod
    def _has_names(group: ConsumerGroup, request: ConsumerHeartbeat) -> bool:
        if request.names is not None:
            return bool(request.names)
        member = group.members.get(request.member_id)
        return member is not None and bool(member.subscription.names)

    async def _heartbeat_later(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        pattern: Pattern | None = None
        while True:
            group = self._group(request)  # the group may have been deleted meanwhile
            if isinstance(group, ConsumerHeartbeatResult):
                return group
            if not group.can_bump:
                if not await self._background.may_bump(group):
                    return ConsumerHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)
            elif pattern is None and self._lacks_pattern(group, request):
                if len(self._tasks) >= TASKS_MAX:
                    return ConsumerHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)
                pattern = Pattern(request.pattern or "", request.viewer)
                resolving = self._resolve(group, pattern)
                # As in Kafka, topics that the member names come first; librdkafka's test 0045 depends on it.
                if not self._has_names(group, request):
                    await wait_at_most(self._clock, PATTERN_WAIT_S, resolving)
            else:
                return self._answered(group, request, pattern)

    def _answered(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, new: Pattern | None = None
    ) -> ConsumerHeartbeatResult:
        pattern = group.pattern(request.pattern or "", request.viewer) or new
        result = self._rules.heartbeat(group, request, pattern)
        self._background.store_ahead(group)
        member = group.members.get(result.member_id or "")
        its = None if member is None else member.subscription.pattern
        if its is not None and its.is_due(self._catalogue.changes, self._clock.monotonic()):
            self._refresh(group, its)
        return result

    def _refresh(self, group: ConsumerGroup, pattern: Pattern) -> None:
        """Resolve a pattern again; if too many tasks wait already, a later heartbeat tries again."""
        if len(self._tasks) < TASKS_MAX:
            self._resolve(group, pattern)

    def _resolve(self, group: ConsumerGroup, pattern: Pattern) -> "asyncio.Task[None]":
        """Resolve a pattern in a task of its own."""
        pattern.is_resolving = True
        return self._tasks.spawn(
            f"resolve a pattern of group {group.group_id!r}", self._resolver.resolve(pattern, group.resolved)
        )

    def _group(self, request: ConsumerHeartbeat) -> ConsumerGroup | ConsumerHeartbeatResult:
        found = self._groups.find(request.group_id)
        if isinstance(found, ConsumerGroup):
            claim(found, request.viewer)
            return found
        instances = found.static_members if isinstance(found, Group | AssignedGroup) else None
        if request.epoch > JOIN and instances is not None and request.instance_id not in instances:
            # It was a member before the group was empty, by a restart or by silence, and became a classic one: its
            # client joins again.  By Kafka's answer, which is below, it ends; Kafka has members that outlive a restart.
            return ConsumerHeartbeatResult(GroupError.UNKNOWN_MEMBER_ID, "The group is a classic one by now.")
        if request.epoch != JOIN:
            what = "There is no such group." if found is None else "The group is no consumer group."
            return ConsumerHeartbeatResult(GroupError.GROUP_ID_NOT_FOUND, what)
        if not self._memory.has_room(GROUP_OVERHEAD_BYTES, request.viewer.shares_as):
            return ConsumerHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)
        made = self._groups.made_consumer(request.group_id)
        if isinstance(made, str):
            return ConsumerHeartbeatResult(GroupError.GROUP_ID_NOT_FOUND, made)
        claim(made, request.viewer)
        for member in made.members.values():
            self._rules.keep_alive(made, member)
        return made

    # --- members of the classic protocol -----------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup of a group with members."""
        if group.can_bump:
            self._join(group, request, reply)
        else:
            self._tasks.spawn(
                f"store epochs of group {group.group_id!r}", self._join_when_stored(group, request, reply)
            )

    async def _join_when_stored(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply) -> None:
        await self._background.may_bump(group)
        if group.can_bump and self._groups.find(group.group_id) is group:
            self._join(group, request, reply)
        else:
            reply(JoinResult(GroupError.COORDINATOR_NOT_AVAILABLE, request.member_id))

    def _join(self, group: ConsumerGroup, request: JoinRequest, reply: JoinReply) -> None:
        self._classic.join(group, request, reply)
        if group.is_all_classic:
            self._goes_back(group)  # it has replaced the last member of the consumer protocol

    def sync(self, group: ConsumerGroup, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup."""
        self._classic.sync(group, request, reply)

    def classic_heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> GroupError:
        """Heartbeat."""
        return self._classic.heartbeat(group, member_id, instance_id, generation)

    # --- administration ----------------------------------------------------------------------------------------------

    def leave(self, group: ConsumerGroup, leaving: LeavingMember) -> GroupError:
        """LeaveGroup, as administrators use it: the member is removed, and learns it from its next heartbeat."""
        return self._rules.remove(group, leaving.member_id, leaving.group_instance_id)

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """State and members; GROUP_ID_NOT_FOUND if the group does not exist, or is a classic one."""
        if not group_id:
            return DescribedConsumerGroup(GroupError.INVALID_GROUP_ID, group_id)
        group = self._groups.find(group_id)
        if not isinstance(group, ConsumerGroup):
            return DescribedConsumerGroup(GroupError.GROUP_ID_NOT_FOUND, group_id)
        return DescribedConsumerGroup(
            GroupError.NONE,
            group_id,
            group.state,
            group.epoch,
            group.assignment_epoch,
            group.preferred_assignor(self._settings.group_consumer_assignors),
            (group.described(one, self._catalogue.name_of) for one in list(group.members.values())),
        )
