"""The classic group protocol: Kafka's JoinGroup, SyncGroup, Heartbeat and LeaveGroup as a synchronous state machine.

    Empty --a member joins--> PreparingRebalance
    PreparingRebalance --all members have joined, or time is up--> CompletingRebalance
    CompletingRebalance --the leader's assignment--> Stable
    Stable --a change of members or metadata--> PreparingRebalance
    PreparingRebalance --all members are gone--> Empty --deleted--> Dead

Every call and every timer runs to its end before the next one; nothing here waits.  A join or sync that cannot be
answered yet is parked as a callback; callbacks must not call back into the machine.  The errors in each state are those
of Apache Kafka's coordinator, with one difference: a request that a retry replaces, or whose member leaves, gets an
answer.  (KIP-134 initial delay, KIP-345 static members, KIP-394 member ids, KIP-559 protocol type and name, KIP-800
reasons, KIP-814 skipping the assignment.)
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base import randomness
from magnetar.base.clock import Clock
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group, Member
from magnetar.broker.groups.model import (
    NO_MEMBER,
    GroupState,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from magnetar.broker.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings

log: Final = logging.getLogger(__name__)

_REPEATED_WAIT_MS_MIN: Final = 1_000  # a member's rebalance time-out may be 0, and the timer needs a pause


class Rebalancer:
    """The rules of one coordinator's groups; each call names its group.

    It calls `on_settled` when a group has become Stable or Empty; `new_id` returns the random part of a member id.
    """

    def __init__(
        self,
        clock: Clock,
        settings: GroupSettings,
        *,
        on_settled: Callable[[Group], None] = lambda group: None,
        new_id: Callable[[], str] = lambda: str(randomness.new_uuid()),
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._on_settled = on_settled
        self._new_id = new_id

    # JoinGroup

    def join(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            reply(JoinResult(GroupError.GROUP_MAX_SIZE_REACHED, NO_MEMBER))
            self._maybe_complete_join(group)
        elif group.state is GroupState.DEAD:
            reply(JoinResult(GroupError.COORDINATOR_NOT_AVAILABLE, request.member_id))
        elif not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            reply(JoinResult(GroupError.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif request.member_id == NO_MEMBER:
            self._join_unknown(group, request, reply)
        elif request.member_id in group.pending_members:
            if request.group_instance_id is None:
                self._add_member(group, request.member_id, request, reply)
            else:  # only dynamic members get pending ids
                reply(JoinResult(GroupError.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._rejoin(group, request, reply)

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._settings.group_max_size
        if group.state is GroupState.PREPARING_REBALANCE:
            # Members that wait keep their place; if the limit was lowered, the last ones to join again are refused.
            return member_id in group.joining or len(group.joining) < limit
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member_id in group.members or len(group.members) < limit
        return True

    def _join_unknown(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                self._add_member(group, member_id, request, reply)
            else:
                self._replace_static(group, old_id, member_id, request, reply)
        elif request.require_known_member_id:
            timer = self._clock.call_later(
                request.session_timeout_ms / 1000, self._expire_pending, group, member_id
            )
            group.add_pending(member_id, timer)
            reply(JoinResult(GroupError.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add_member(group, member_id, request, reply)

    def _rejoin(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        member_id = request.member_id
        error = group.check_member(member_id, request.group_instance_id)
        if error is not GroupError.NONE:
            reply(JoinResult(error, member_id))
            return
        member = group.members[member_id]
        unchanged = member.protocols == request.protocols
        leads = group.leader == member_id
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # The answer to its first join was lost: send the same answer again.
            reply(self._current_result(group, member_id, with_members=leads))
        elif group.state is GroupState.STABLE and unchanged and not leads:
            reply(self._current_result(group, member_id))
        else:
            # The leader may ask for a rebalance for reasons that its metadata does not show, such as new partitions.
            group.update(member, request)
            group.park_join(member, reply)
            self._rebalance_or_complete(group, f"{member_id} joined again: {request.reason or '-'}")

    def _add_member(self, group: Group, member_id: str, request: JoinRequest, reply: JoinReply) -> None:
        member = Member(member_id, request)
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type)
        group.park_join(member, reply)
        self._keep_alive(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, f"{member_id} joined: {request.reason or 'no reason given'}")

    def _replace_static(
        self, group: Group, old_id: str, new_id: str, request: JoinRequest, reply: JoinReply
    ) -> None:
        leader_before = group.leader or NO_MEMBER
        member = group.replace_static(old_id, new_id)
        group.update(member, request)
        group.park_join(member, reply)
        self._keep_alive(group, member, member.session_timeout_ms)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            log.debug("static member %r of group %r came back as %r", old_id, group.group_id, new_id)
            if request.supports_skip_assignment:
                leads = group.leader == new_id
                result = self._current_result(group, new_id, with_members=leads, skip_assignment=leads)
            else:
                # With the old leader's id in the answer, an older client does not know that it leads and must assign.
                result = self._current_result(group, new_id, leader=leader_before)
            group.answer_join(member, result)
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may already know the old id, and an assignment to that would reach no member.
            self._prepare(group, f"static member {new_id} came back while assignments were made")
        else:
            self._rebalance_or_complete(group, f"static member {new_id} came back with other protocols")

    def _current_result(
        self,
        group: Group,
        member_id: str,
        *,
        with_members: bool = False,
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> JoinResult:
        return JoinResult(
            GroupError.NONE,
            member_id,
            group.generation,
            group.protocol_type,
            group.protocol_name,
            leader if leader is not None else group.leader or NO_MEMBER,
            skip_assignment,
            group.joined_members() if with_members else (),
        )

    def take_over(self, group: Group) -> None:
        """Let members that come from a group of the consumer protocol join again; one of them assigns."""
        for member in group.members.values():
            self._keep_alive(group, member, member.session_timeout_ms)
        self._prepare(group, "its last member of the consumer protocol has gone")

    # rebalancing

    def _rebalance_or_complete(self, group: Group, reason: str) -> None:
        if group.can_rebalance:
            self._prepare(group, reason)
        else:
            self._maybe_complete_join(group)

    def _prepare(self, group: Group, reason: str) -> None:
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                group.assign(member, b"")
                if member.answer_sync(SyncResult(GroupError.REBALANCE_IN_PROGRESS)):
                    self._keep_alive(group, member, member.session_timeout_ms)
        group.pending_syncs.clear()
        group.cancel_sync_timer()
        initial = group.state is GroupState.EMPTY
        log.debug("group %r rebalances after generation %d: %r", group.group_id, group.generation, reason)
        group.move_to(GroupState.PREPARING_REBALANCE, self._clock.now_ms())
        group.cancel_join_timer()
        if initial:
            # The group is new, and more members may come soon: collect them before the first assignment.
            group.new_member_added = False
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.join_timer = self._clock.call_later(
                delay_ms / 1000, self._initial_delay_over, group, delay_ms, remaining_ms
            )
        elif group.all_joined:
            self._complete_join(group)
        else:
            self._limit_join(group, group.rebalance_timeout_ms)

    def _limit_join(self, group: Group, timeout_ms: int) -> None:
        group.join_timer = self._clock.call_later(timeout_ms / 1000, self._complete_join, group)

    def _initial_delay_over(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        if not (group.new_member_added and remaining_ms):
            self._complete_join(group)
            return
        group.new_member_added = False
        next_delay_ms = min(self._settings.group_initial_rebalance_delay_ms, remaining_ms)
        group.join_timer = self._clock.call_later(
            next_delay_ms / 1000,
            self._initial_delay_over,
            group,
            next_delay_ms,
            max(remaining_ms - delay_ms, 0),
        )

    def _maybe_complete_join(self, group: Group) -> None:
        initial = group.previous_state is GroupState.EMPTY
        if group.state is GroupState.PREPARING_REBALANCE and not initial and group.all_joined:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        """Begin the next generation with the members that have joined; the others are removed, except static ones."""
        assert group.state is GroupState.PREPARING_REBALANCE, group.state
        group.cancel_join_timer()
        late = [
            member_id
            for member_id, member in group.members.items()
            if member_id not in group.joining and member.group_instance_id is None
        ]
        for member_id in late:
            group.remove(member_id)
        if late:
            log.info("group %r continues without members that did not rejoin: %s", group.group_id, late)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none of them has joined: wait for one, or for the end of their
            # sessions.
            self._limit_join(group, max(group.rebalance_timeout_ms, _REPEATED_WAIT_MS_MIN))
            return
        group.begin_generation(self._clock.now_ms())
        if not group.members:
            self._on_settled(group)
            return
        group.pending_syncs.update(group.members)
        group.sync_timer = self._clock.call_later(
            group.rebalance_timeout_ms / 1000, self._expire_syncs, group, group.generation
        )
        for member in group.members.values():
            member.is_new = False
            self._keep_alive(group, member, member.session_timeout_ms)
            leads = group.leader == member.member_id
            group.answer_join(member, self._current_result(group, member.member_id, with_members=leads))

    # SyncGroup

    def sync(self, group: Group, request: SyncRequest, reply: SyncReply) -> None:
        error = self._check_sync(group, request)
        if error is not GroupError.NONE:
            reply(SyncResult(error))
            return
        member = group.members[request.member_id]
        group.pending_syncs.discard(request.member_id)
        if not group.pending_syncs:
            group.cancel_sync_timer()
        if group.state is GroupState.STABLE:
            reply(SyncResult(GroupError.NONE, member.assignment, group.protocol_type, group.protocol_name))
            return
        member.park_sync(reply)
        if group.leader == request.member_id:
            self._assign(group, request.assignments)

    def _check_sync(self, group: Group, request: SyncRequest) -> GroupError:
        if group.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not GroupError.NONE:
            return error
        if request.generation != group.generation:
            return GroupError.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, group.protocol_name):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if group.state is GroupState.PREPARING_REBALANCE:
            return GroupError.REBALANCE_IN_PROGRESS
        return GroupError.NONE

    def _assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        group.move_to(GroupState.STABLE, self._clock.now_ms())
        self._on_settled(group)
        for member in group.members.values():
            group.assign(member, assignments.get(member.member_id, b""))
            result = SyncResult(GroupError.NONE, member.assignment, group.protocol_type, group.protocol_name)
            if member.answer_sync(result):
                self._keep_alive(group, member, member.session_timeout_ms)

    def _expire_syncs(self, group: Group, generation: int) -> None:
        group.sync_timer = None
        if generation != group.generation or not group.pending_syncs:
            return
        late = sorted(group.pending_syncs)
        for member_id in late:
            group.remove(member_id)
        self._prepare(group, f"no sync from {late}")

    # Heartbeat and time-outs

    def heartbeat(
        self, group: Group, member_id: str, group_instance_id: str | None, generation: int
    ) -> GroupError:
        if group.state is GroupState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        error = group.check_member(member_id, group_instance_id)
        if error is not GroupError.NONE:
            return error
        if generation != group.generation:
            return GroupError.ILLEGAL_GENERATION
        self.touch(group, member_id)
        preparing = group.state is GroupState.PREPARING_REBALANCE
        return GroupError.REBALANCE_IN_PROGRESS if preparing else GroupError.NONE

    def touch(self, group: Group, member_id: str) -> None:
        """Extend a member's session, because any valid request proves that it is alive."""
        member = group.members[member_id]
        self._keep_alive(group, member, member.session_timeout_ms)

    def _keep_alive(self, group: Group, member: Member, timeout_ms: int) -> None:
        member.deadline = self._clock.monotonic() + timeout_ms / 1000
        if member.timer is None or member.deadline < member.timer_deadline:
            self._arm(group, member)

    def _arm(self, group: Group, member: Member) -> None:
        member.stop_timer()
        member.timer_deadline = member.deadline
        delay_s = member.deadline - self._clock.monotonic()
        member.timer = self._clock.call_later(delay_s, self._expire_session, group, member)

    def _expire_session(self, group: Group, member: Member) -> None:
        member.timer = None
        if self._clock.monotonic() < member.deadline:
            self._arm(group, member)
        elif member.is_new or not member.waits:
            # A new member's client may have abandoned the parked join, and it has no session that could end.
            log.info("member %r of group %r has failed", member.member_id, group.group_id)
            self._remove(group, member.member_id, f"{member.member_id} has failed")

    def _expire_pending(self, group: Group, member_id: str) -> None:
        group.drop_pending(member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(group)

    def _remove(self, group: Group, member_id: str, reason: str) -> None:
        group.remove(member_id)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare(group, reason)
        elif group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(group)

    # LeaveGroup

    def leave(self, group: Group, members: Sequence[LeavingMember]) -> list[GroupError]:
        """Remove members; one answer for each, in order.  The group rebalances once, however many have left."""
        errors = [self._leave_one(group, leaving) for leaving in members]
        left = [leaving for leaving, error in zip(members, errors, strict=True) if error is GroupError.NONE]
        if left:
            named = [(m.member_id or m.group_instance_id, m.reason or "no reason given") for m in left]
            if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self._prepare(group, f"left: {named}")
            else:
                self._maybe_complete_join(group)
        return errors

    def _leave_one(self, group: Group, leaving: LeavingMember) -> GroupError:
        member_id = leaving.member_id
        if member_id == NO_MEMBER:
            member_id = group.static_members.get(leaving.group_instance_id or "", NO_MEMBER)
            if member_id == NO_MEMBER:
                return GroupError.UNKNOWN_MEMBER_ID
        elif member_id not in group.pending_members:
            error = group.check_member(member_id, leaving.group_instance_id)
            if error is not GroupError.NONE:
                return error
        group.remove(member_id)
        return GroupError.NONE
