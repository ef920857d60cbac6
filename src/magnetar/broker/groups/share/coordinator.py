"""All share groups: it finds or creates the group that a heartbeat names, and waits for its epochs if it must."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol

from magnetar.broker.groups.configs import Timing
from magnetar.broker.groups.consumer.checks import IDS_BYTES_MAX, JOIN, LEAVE
from magnetar.broker.groups.consumer.environment import Environment
from magnetar.broker.groups.consumer.group import AssignedGroup
from magnetar.broker.groups.consumer.heartbeats import Heartbeats
from magnetar.broker.groups.consumer.subscription import subscription_size
from magnetar.broker.groups.epochs import GROUP_OVERHEAD_BYTES, EpochGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.memory import claim
from magnetar.broker.groups.model import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DescribedConsumerGroup,
    ShareHeartbeat,
)
from magnetar.broker.groups.settings import MEMBER_BYTES_MAX
from magnetar.broker.groups.share.assignor import simple
from magnetar.broker.groups.share.group import ShareGroup

ASSIGNOR: Final = "simple"


class Groups(Protocol):
    """All groups, of any protocol."""

    def find(self, group_id: str) -> Group | EpochGroup | None: ...

    def made_share(self, group_id: str) -> ShareGroup | str:
        """Create a group, or return why that is not possible."""
        ...


class ShareGroups:
    """See the module's text.  `timing` returns the timing of a group."""

    def __init__(
        self,
        groups: Groups,
        environment: Environment,
        *,
        on_settled: Callable[[AssignedGroup], None],
        timing: Callable[[str], Timing],
        new_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._catalogue = environment.catalogue
        self._memory = environment.memory
        self._background = environment.background
        self._clock = environment.clock
        self._timing = timing
        self._rules = Heartbeats(
            environment,
            members_max=environment.settings.group_share_max_size,
            assignor=lambda _: simple,
            on_settled=on_settled,
            goes_back=lambda _: False,
            timing=timing,
            new_id=new_id,
        )

    def heartbeat(
        self, request: ShareHeartbeat
    ) -> ConsumerHeartbeatResult | Awaitable[ConsumerHeartbeatResult]:
        """ShareGroupHeartbeat: answered at once, unless it must wait for the group's epochs."""
        problem = _problem_of(request)
        if problem is not None:
            return ConsumerHeartbeatResult(GroupError.INVALID_REQUEST, problem)
        group = self._group(request)
        if isinstance(group, ConsumerHeartbeatResult):
            return group
        return self._answered(group, request) if group.can_bump else self._heartbeat_later(request)

    async def _heartbeat_later(self, request: ShareHeartbeat) -> ConsumerHeartbeatResult:
        while True:
            group = self._group(request)  # the group may have been deleted meanwhile
            if isinstance(group, ConsumerHeartbeatResult):
                return group
            if group.can_bump:
                return self._answered(group, request)
            if not await self._background.may_bump(group):
                return ConsumerHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)

    def _answered(self, group: ShareGroup, request: ShareHeartbeat) -> ConsumerHeartbeatResult:
        result = self._rules.heartbeat(group, _as_of_a_consumer(request))
        self._background.store_ahead(group)
        # The assignment changes only together with the epoch.
        return replace(result, assignment=None) if request.epoch == result.epoch else result

    def _group(self, request: ShareHeartbeat) -> ShareGroup | ConsumerHeartbeatResult:
        found = self._groups.find(request.group_id)
        if isinstance(found, ShareGroup):
            claim(found, request.viewer)
            return found
        if request.epoch != JOIN:
            what = "There is no such group." if found is None else "The group is no share group."
            return ConsumerHeartbeatResult(GroupError.GROUP_ID_NOT_FOUND, what)
        if not self._memory.has_room(GROUP_OVERHEAD_BYTES, request.viewer.shares_as):
            return ConsumerHeartbeatResult(GroupError.COORDINATOR_NOT_AVAILABLE)
        made = self._groups.made_share(request.group_id)
        if isinstance(made, str):
            return ConsumerHeartbeatResult(GroupError.GROUP_ID_NOT_FOUND, made)
        claim(made, request.viewer)
        # Several consumers may have a partition, and the first fetch of one takes all that is there: those that start
        # together wait for each other.
        pause_s = self._timing(request.group_id).assignment_interval_ms / 1000
        made.gathers_until_s = self._clock.monotonic() + pause_s
        return made

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """State and members; GROUP_ID_NOT_FOUND if the group does not exist, or is no share group."""
        if not group_id:
            return DescribedConsumerGroup(GroupError.INVALID_GROUP_ID, group_id)
        group = self._groups.find(group_id)
        if not isinstance(group, ShareGroup):
            return DescribedConsumerGroup(GroupError.GROUP_ID_NOT_FOUND, group_id)
        return DescribedConsumerGroup(
            GroupError.NONE,
            group_id,
            group.state,
            group.epoch,
            group.assignment_epoch,
            ASSIGNOR,
            (group.described(one, self._catalogue.name_of) for one in list(group.members.values())),
        )


def _as_of_a_consumer(request: ShareHeartbeat) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.epoch,
        rack_id=request.rack_id,
        names=request.names,
        topics=request.topics,
        owned={},  # it need not release partitions before others may have them
        client_id=request.client_id,
        client_host=request.client_host,
        checked_at=request.checked_at,
        viewer=request.viewer,
    )


def _problem_of(request: ShareHeartbeat) -> str | None:
    for what, value in (
        ("group id", request.group_id),
        ("member id", request.member_id),
        ("rack id", request.rack_id),
    ):
        if value is not None and len(value) > IDS_BYTES_MAX:
            return f"The {what} is longer than {IDS_BYTES_MAX} letters."
        if value is not None and not value.strip():
            return f"The {what} must not be empty."
    if request.epoch < LEAVE:
        return "There is no such member epoch."
    if request.epoch == JOIN and not request.names:
        return "A member that joins must say what it subscribes to."
    if request.names is not None and subscription_size(request.names) > MEMBER_BYTES_MAX:
        return "The subscription is larger than the server keeps."
    return None
