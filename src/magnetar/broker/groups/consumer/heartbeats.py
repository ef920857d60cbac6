"""The consumer group protocol (KIP-848) as a synchronous state machine: heartbeats in, epochs and assignments out.

    Empty --a member joins--> Assigning --the target is computed--> Reconciling --all members have it--> Stable
    Stable, Reconciling --a change of members, subscriptions or topics--> Assigning
    any --the last member is gone--> Empty --deleted--> Dead

Every call and every timer runs to its end before the next one; nothing here waits.  A change gives the group its next
epoch.  The heartbeat that finds the target of an epoch missing computes it, at most once in the assignment interval,
and on a thread if the group is large (`assign_later`).  Until it is there, members continue with the last target.
A group that gathers its first members has no topics until then, and its members come back when it has.

A request is answered from its content and the group's state.  The errors are those of Apache Kafka's coordinator.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from magnetar.broker.groups.configs import Timing
from magnetar.broker.groups.consumer.assignors import (
    Assignments,
    Assignor,
    Candidate,
    Partitions,
    TopicId,
)
from magnetar.broker.groups.consumer.checks import JOIN, LEAVE
from magnetar.broker.groups.consumer.environment import Environment
from magnetar.broker.groups.consumer.group import (
    LEFT_FOR_NOW,
    PARTITION_BYTES,
    AssignedGroup,
    ClassicPart,
    ConsumerMember,
    MemberState,
)
from magnetar.broker.groups.consumer.patterns import Pattern
from magnetar.broker.groups.consumer.reconcile import owns_all, owns_no_more_than, reconcile
from magnetar.broker.groups.consumer.subscription import Subscription
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import ConsumerHeartbeat, ConsumerHeartbeatResult
from magnetar.broker.groups.viewer import Viewer
from magnetar.broker.groups.watch import Watch

AT_ONCE_MAX: Final = (
    5_000  # members, partitions and subscriptions of a group whose target is computed on the loop
)
GROUP_NAMES_MAX: Final = 100_000  # names in all subscriptions of a group: all are looked up at once, in 20 ms
ASKED_AT_ONCE_MAX: Final = 500  # rights to topics: before others have asked for them, each takes 10 us
_LOOK_UP_S: Final = 1.0  # between two look-ups of topics, however often topics change


class Refused(Exception):
    """The answer to a heartbeat is an error."""

    def __init__(self, error: GroupError, message: str = "") -> None:
        super().__init__(message)
        self.error = error
        self.message = message or error.value


class Assigning:
    """The computation of one target: `compute` uses no state of the group, and may run on a thread."""

    def __init__(
        self,
        epoch: int,
        assign: Assignor,
        candidates: list[Candidate],
        counts: dict[TopicId, int],
        before: dict[str, Partitions],
    ) -> None:
        self.epoch = epoch
        self._assign = assign
        self._candidates = candidates
        self._counts = counts
        self._before = before

    @property
    def cost(self) -> int:
        topics = sum(len(one.topics) for one in self._candidates)
        return len(self._candidates) + topics + sum(self._counts.values())

    def compute(self) -> Assignments:
        return self._assign(self._candidates, self._counts, self._before)


class Heartbeats:
    """The rules of one coordinator's groups; each call names its group.

    It calls `on_settled` when a group gets its first member or loses its last one.  It calls `goes_back` when a
    member has left and all others speak the classic protocol; that returns whether another group has replaced this
    one.  `assignor` returns the assignor of a group, and `timing` the timing of a group by its id; `members_max` is how
    many members a group may have.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        members_max: int,
        assignor: Callable[[AssignedGroup], Assignor],
        on_settled: Callable[[AssignedGroup], None],
        goes_back: Callable[[AssignedGroup], bool],
        timing: Callable[[str], Timing],
        new_id: Callable[[], str],
    ) -> None:
        self._clock = clock = environment.clock
        self._members_max = members_max
        self._assignor = assignor
        self._catalogue = environment.catalogue
        self._on_settled = on_settled
        self._goes_back = goes_back
        self._background = environment.background
        self._timing = timing
        self._new_id = new_id
        self.watch: Watch[AssignedGroup, ConsumerMember] = Watch(clock, self._remove)

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(
        self, group: AssignedGroup, request: ConsumerHeartbeat, pattern: Pattern | None = None
    ) -> ConsumerHeartbeatResult:
        """Answer a heartbeat that has passed `checks`; `pattern` is the one that it names, if any.  The group's next
        epoch must be stored already.
        """
        try:
            if request.epoch in (LEAVE, LEFT_FOR_NOW):
                return self._leave(group, request)
            return self._go_on(group, request, pattern)
        except Refused as refusal:
            return ConsumerHeartbeatResult(refusal.error, refusal.message)

    def join_classic(
        self, group: AssignedGroup, request: ConsumerHeartbeat, classic: ClassicPart
    ) -> ConsumerMember:
        """Let a member of the classic protocol join, or join again; `request` has the content of its JoinGroup.

        `request.has_own_id`: the client has sent a member id.

        Raises:
            Refused
        """
        member, _ = self._taken_on(group, request, None, classic)
        return member

    def _go_on(
        self, group: AssignedGroup, request: ConsumerHeartbeat, pattern: Pattern | None
    ) -> ConsumerHeartbeatResult:
        member, is_new = self._taken_on(group, request, pattern, None)
        # A member that has not got its target may have lost the answer that contained it.
        names_topics = request.names is not None or request.pattern is not None
        said_all = request.epoch == JOIN or (
            request.rebalance_timeout_ms != -1 and names_topics and request.owned is not None
        )
        lacks = request.owned is not None and not owns_all(request.owned, member.assigned)
        return ConsumerHeartbeatResult(
            GroupError.NONE,
            "",
            member.member_id,
            member.epoch,
            self._pause_ms(group),
            member.assigned if is_new or said_all or lacks else None,
        )

    def _pause_ms(self, group: AssignedGroup) -> int:
        """When a member is to send its next heartbeat."""
        interval_ms = self._timing(group.group_id).heartbeat_interval_ms
        gathers_s = group.gathers_until_s - self._clock.monotonic()
        return interval_ms if gathers_s <= 0 else min(interval_ms, math.ceil(gathers_s * 1000))

    def _taken_on(
        self,
        group: AssignedGroup,
        request: ConsumerHeartbeat,
        pattern: Pattern | None,
        classic: ClassicPart | None,
    ) -> tuple[ConsumerMember, bool]:
        """Add or update the member and take it as far as it can go now; returns it, and whether its assignment has
        changed.
        """
        if request.epoch == JOIN:
            member, changed = self._joined(group, request, pattern, classic)
        else:
            member = self._known(group, request)
            changed = self._updated(group, member, request, pattern)
        group.speak(member, classic)
        member.client_id, member.client_host = request.client_id, request.client_host
        if self._topics_changed(group, changed) or changed or group.owes_epoch:
            group.bump()
        self.assign_if_due(group)
        is_new = reconcile(group, member, request.owned)
        if classic is None:
            is_due = member.state is MemberState.UNREVOKED
            self.watch.limit_revocation(group, member, begins=is_new, is_due=is_due)
        self.keep_alive(group, member)
        return member, is_new

    # --- who it is ---------------------------------------------------------------------------------------------------

    def _known(self, group: AssignedGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        member = self.member(group, request.member_id, request.instance_id)
        given = member.epoch
        # The answer that gave it its epoch may have been lost, and its partitions with it.
        retries = request.epoch == member.previous_epoch and owns_no_more_than(request.owned, member.assigned)
        if request.epoch > given or (request.epoch < given and not retries):
            raise Refused(
                GroupError.FENCED_MEMBER_EPOCH,
                f"The member's epoch is {given}, not {request.epoch}: it has to give all up and join again.",
            )
        return member

    @staticmethod
    def member(group: AssignedGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member with this id, and with this instance id if it has one.

        Raises:
            Refused
        """
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is None:
                raise Refused(
                    GroupError.UNKNOWN_MEMBER_ID, "No member of the group has this group instance id."
                )
            if current != member_id:
                raise Refused(GroupError.FENCED_INSTANCE_ID)
        member = group.members.get(member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID)
        return member

    def _joined(
        self,
        group: AssignedGroup,
        request: ConsumerHeartbeat,
        pattern: Pattern | None,
        classic: ClassicPart | None,
    ) -> tuple[ConsumerMember, bool]:
        """Let a member join, or join again; returns it, and whether that changes the group."""
        member_id = request.member_id or self._new_id()
        if request.instance_id is not None:
            current = group.static_members.get(request.instance_id)
            if classic is not None and request.has_own_id:
                self.member(group, member_id, request.instance_id)  # it has got its place before
            elif current is not None and current != member_id:
                member = group.members[current]
                if member.epoch != LEFT_FOR_NOW and member.classic is None and classic is None:
                    raise Refused(GroupError.UNRELEASED_INSTANCE_ID)
                if member_id in group.members:
                    raise Refused(GroupError.INVALID_REQUEST, "The member id is another member's.")
                group.replace_static(member, member_id)
                return member, self._updated(group, member, request, pattern)
        known = group.members.get(member_id)
        if known is not None:
            if known.instance_id != request.instance_id:
                raise Refused(GroupError.INVALID_REQUEST, "The member id is that of another instance.")
            if known.epoch == LEFT_FOR_NOW:
                known.epoch = known.previous_epoch = JOIN
            return known, self._updated(group, known, request, pattern)
        return self._added(group, member_id, request, pattern)

    def _added(
        self, group: AssignedGroup, member_id: str, request: ConsumerHeartbeat, pattern: Pattern | None
    ) -> tuple[ConsumerMember, bool]:
        if len(group.members) >= self._members_max:
            raise Refused(
                GroupError.GROUP_MAX_SIZE_REACHED,
                f"The group has {self._members_max} members, as many as it may.",
            )
        subscription = group.subscription(request.names or (), request.topics, pattern, request.viewer)
        self._ask(subscription, request)
        self._check_room(group, subscription)
        member = ConsumerMember(member_id, request.instance_id, subscription)
        member.rack_id = request.rack_id
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.assignor = request.assignor
        is_first = not group.members
        group.add(member, self._clock.now_ms())
        if is_first:
            self._on_settled(group)
        return member, bool(request.names or pattern)

    def _updated(
        self,
        group: AssignedGroup,
        member: ConsumerMember,
        request: ConsumerHeartbeat,
        pattern: Pattern | None,
    ) -> bool:
        """Note what the member says now; returns whether that changes the group's subscriptions."""
        before = member.subscription
        names, topics = before.names, before.topics
        if request.names is not None:
            names, topics = request.names, request.topics
        viewer = request.viewer
        if viewer.owner != before.viewer.owner:  # another client: nothing of what the one before might see
            group.hold(member, {}, {})
            group.target.pop(member.member_id, None)
        elif request.pattern is None and before.pattern is not None:
            pattern = _kept(group, before.pattern, viewer)
        subscription = group.subscription(names, topics, pattern, viewer)
        if subscription is not before:
            self._ask(subscription, request)
            self._check_room(group, subscription)
            group.subscribe(member, subscription)
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.assignor is not None:
            member.assignor = request.assignor
        return (
            viewer.key != before.viewer.key
            or set(topics) != set(before.topics)
            or subscription.pattern is not before.pattern
        )

    def _ask(self, subscription: Subscription, request: ConsumerHeartbeat) -> None:
        """Which topics of a subscription that may be new its client may see; of one with many that is not known at
        once.
        """
        if subscription.asked_at >= 0:
            return
        if request.names is not None and request.checked_at >= 0:
            subscription.trust(request.checked_at)
        elif len(subscription.topics) <= ASKED_AT_ONCE_MAX:
            _ask_all([subscription], self._catalogue.rights_changes)

    def _ask_again(self, group: AssignedGroup) -> None:
        """Ask for rights that have changed since; beside heartbeats if they are many."""
        rights_changes = self._catalogue.rights_changes
        due = group.unasked(rights_changes)
        if sum(len(one.topics) for one in due) <= ASKED_AT_ONCE_MAX:
            before = [one.seen for one in due]
            _ask_all(due, rights_changes)
            group.sees_others = group.sees_others or before != [one.seen for one in due]
        elif not group.is_asking:
            self._background.ask_later(group, due, rights_changes)

    def _check_room(self, group: AssignedGroup, subscription: Subscription) -> None:
        """Check that there is memory for topics that only this subscription has, and for their partitions."""
        if subscription.users:
            return
        if group.name_count + len(subscription.names) > GROUP_NAMES_MAX:
            raise Refused(GroupError.INVALID_REQUEST, f"A group can subscribe to {GROUP_NAMES_MAX} names.")
        size = group.size_of(subscription)
        for topic in subscription.all_topics:
            found = None if topic in group.known else self._catalogue.found(topic)
            size += PARTITION_BYTES * (found[1] if found else 0)
        if not group.memory.has_room(size):
            raise Refused(GroupError.COORDINATOR_NOT_AVAILABLE, "There is no memory left for more members.")

    # --- assignments -------------------------------------------------------------------------------------------------

    def _topics_changed(self, group: AssignedGroup, subscribed_anew: bool) -> bool:
        """Look up the topics again if that is due; returns whether topics or their numbers of partitions have
        changed.
        """
        now_s = self._clock.monotonic()
        if now_s < group.gathers_until_s:
            return False
        is_late = group.known_changes != self._catalogue.changes and now_s >= group.known_at_s + _LOOK_UP_S
        if not subscribed_anew and not is_late:
            return False
        group.known_changes, group.known_at_s = self._catalogue.changes, now_s
        self._ask_again(group)
        known = {
            topic: found for topic in group.topics if (found := self._catalogue.found(topic)) is not None
        }
        changed = group.sees_others or known != group.known
        group.sees_others = False
        group.known = known
        return changed

    def assign_if_due(self, group: AssignedGroup) -> None:
        """Compute the target if it is missing and the assignment interval has passed."""
        if group.epoch == group.assignment_epoch or group.is_assigning:
            return
        now_s = self._clock.monotonic()
        pause_s = self._timing(group.group_id).assignment_interval_ms / 1000
        if group.target and group.assigned_at_s is not None and now_s < group.assigned_at_s + pause_s:
            return
        if now_s >= group.gathers_until_s:
            group.assigned_at_s = now_s
        known = group.known
        job = Assigning(
            group.epoch,
            self._assignor(group),
            group.candidates(known),
            dict(known.values()),
            dict(group.target),
        )
        if job.cost <= AT_ONCE_MAX:
            group.install(job.compute(), job.epoch)
        else:
            group.is_assigning = True
            self._background.assign_later(group, job.compute, partial(self._assigned, group, job))

    def _assigned(self, group: AssignedGroup, job: Assigning, target: Assignments) -> None:
        """Install a target that a thread has computed, without members that have left meanwhile."""
        group.is_assigning = False
        if not group.is_dead:
            present = {name: parts for name, parts in target.items() if name in group.members}
            group.install(present, job.epoch)

    # --- time --------------------------------------------------------------------------------------------------------

    def keep_alive(self, group: AssignedGroup, member: ConsumerMember) -> None:
        """Extend the member's session, because it has sent a request."""
        timeout_ms = self._timing(group.group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.watch.keep_alive(group, member, timeout_ms)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _leave(self, group: AssignedGroup, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        member = self.member(group, request.member_id, request.instance_id)
        if request.epoch == LEFT_FOR_NOW:
            member.epoch = LEFT_FOR_NOW
            member.state = MemberState.STABLE
            member.stop_rebalance_timer()
            group.hold(member, member.assigned, {})
            group.reconciled.discard(member.member_id)
        else:
            self._remove(group, member)
        return ConsumerHeartbeatResult(GroupError.NONE, "", request.member_id, request.epoch)

    def remove(self, group: AssignedGroup, member_id: str, instance_id: str | None) -> GroupError:
        """Remove a member for an administrator, by its id, or only by its instance id."""
        if not member_id:
            member_id = group.static_members.get(instance_id or "", "")
        member = group.members.get(member_id)
        if member is None:
            return GroupError.UNKNOWN_MEMBER_ID
        if instance_id is not None and member.instance_id != instance_id:
            return GroupError.FENCED_INSTANCE_ID
        self._remove(group, member)
        return GroupError.NONE

    def _remove(self, group: AssignedGroup, member: ConsumerMember) -> None:
        group.remove(member, self._clock.now_ms())
        if group.is_all_classic and self._goes_back(group):
            return
        group.bump()
        if not group.members:
            self._on_settled(group)


def _kept(group: AssignedGroup, pattern: Pattern, viewer: Viewer) -> Pattern:
    """The pattern of a member that does not name it anew, for the rights that its client has where it is now.  It
    begins with what was found elsewhere, if that is quickly asked for.
    """
    if pattern.viewer.key == viewer.key:
        return pattern
    known = pattern.topics if len(pattern.topics) <= ASKED_AT_ONCE_MAX else frozenset[str]()
    return group.pattern(pattern.text, viewer) or Pattern(pattern.text, viewer, filter(viewer.may_see, known))


def _ask_all(subscriptions: Iterable[Subscription], rights_changes: int) -> None:
    for one in subscriptions:
        for _ in one.ask(rights_changes):
            pass
