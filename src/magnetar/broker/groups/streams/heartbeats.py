"""The streams protocol (KIP-1071) as a synchronous state machine: heartbeats in, epochs and tasks out.

    Empty --a member joins--> NotReady --all topics are there--> Assigning --the target is computed--> Reconciling
    Reconciling --all members have it--> Stable
    Stable, Reconciling --a change of members, topics or standbys--> Assigning, or NotReady where topics are missing
    any --the last member is gone--> Empty --deleted--> Dead

Every call and every timer runs to its end before the next one; nothing here waits.  A change gives the group its next
epoch.  The heartbeat that finds the target of an epoch missing computes it.  For a new group it does so after a delay,
in which other members may join; after that, at most once in the assignment interval.  For a large group a thread
computes it (`assign_later`).  Until the target is there, members keep the last one.  While topics are missing no member
has tasks.

The errors, and their order, are those of Apache Kafka's coordinator.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from magnetar.broker.groups.configs import StreamsRules
from magnetar.broker.groups.consumer.checks import JOIN, LEAVE
from magnetar.broker.groups.consumer.environment import Environment
from magnetar.broker.groups.consumer.heartbeats import AT_ONCE_MAX, Refused
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import StreamsHeartbeat, StreamsHeartbeatResult, StreamsStatus, Tasks
from magnetar.broker.groups.streams.assignor import Assignments, Candidate, Work, sticky
from magnetar.broker.groups.streams.group import (
    NO_TASKS,
    TASK_BYTES,
    MemberState,
    StreamsGroup,
    StreamsMember,
)
from magnetar.broker.groups.streams.reconcile import owns_no_more_than, reconcile
from magnetar.broker.groups.streams.topics import InvalidTopology, configured
from magnetar.broker.groups.watch import Watch

_LOOK_UP_S: Final = 1.0  # between two look-ups of the topics, however often topics change
_FOR_MEMBERS: Final = "Assignment delayed due to the configured initial rebalance delay."
_FOR_THE_INTERVAL: Final = "Assignment delayed due to the configured assignment interval."


class Assigning:
    """The computation of one target: `compute` touches nothing of the group, and may run on a thread."""

    def __init__(self, group: StreamsGroup) -> None:
        assert group.topology is not None, group.group_id
        assert group.configured is not None, group.group_id
        self.epoch = group.epoch
        self._standbys = group.standbys
        tasks = group.configured.tasks if group.is_ready else {}
        self._work = [
            Work(part.subtopology_id, tasks[part.subtopology_id], bool(part.changelogs))
            for part in sorted(group.topology.subtopologies, key=lambda part: part.subtopology_id)
            if part.subtopology_id in tasks
        ]
        self._candidates = [
            Candidate(one.member_id, one.process_id, group.target.get(one.member_id, NO_TASKS))
            for one in group.members.values()
        ]

    @property
    def cost(self) -> int:
        return len(self._candidates) + sum(
            one.task_count * (1 + self._standbys * one.is_stateful) for one in self._work
        )

    def compute(self) -> Assignments:
        return sticky(self._candidates, self._work, self._standbys)


class StreamsHeartbeats:
    """The rules of one coordinator's streams groups; each call names the group that it is about.

    `on_settled` is called when a group gets its first member, or loses its last one.  `rules` returns the rules of a
    group, by its id.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        on_settled: Callable[[StreamsGroup], None],
        rules: Callable[[str], StreamsRules],
    ) -> None:
        self._clock = clock = environment.clock
        self._catalogue = environment.catalogue
        self._members_max = environment.settings.group_streams_max_size
        self._on_settled = on_settled
        self._background = environment.background
        self._rules = rules
        self._watch: Watch[StreamsGroup, StreamsMember] = Watch(clock, self._remove)

    def heartbeat(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """Answer a heartbeat that has passed the `checks`; the group has a topology, and its next epoch is stored."""
        try:
            return self._leave(group, request) if request.epoch == LEAVE else self._go_on(group, request)
        except Refused as refusal:
            return StreamsHeartbeatResult(refusal.error, refusal.message)

    def _go_on(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        member = self._known(group, request) if request.epoch != JOIN else self._joining(group, request)
        _check_topology(group, request)
        _check_tasks(group, request.owned)
        was_empty = not group.members
        changed = self._look_at_topics(group)
        changed |= group.change(member, partial(_note, member, request))
        if member.member_id not in group.members:
            group.add(member, self._clock.now_ms())
            changed = True
        rules = self._rules(group.group_id)
        if was_empty:
            self._on_settled(group)
            if rules.initial_delay_ms:
                group.delayed_until_s = self._clock.monotonic() + rules.initial_delay_ms / 1000
        if changed or rules.standbys != group.standbys or group.owes_epoch:
            group.standbys = rules.standbys
            group.bump()
        delayed = self._assign_if_due(group)
        owned = NO_TASKS if request.epoch == JOIN else request.owned
        has_new = reconcile(group, member, owned)
        is_due = member.state is MemberState.UNREVOKED
        self._watch.limit_revocation(group, member, begins=has_new, is_due=is_due)
        self._watch.keep_alive(group, member, rules.timing.session_timeout_ms)
        if request.shuts_down and group.shut_down_by is None:
            group.shut_down_by = member.member_id
        # A member without its target may have lost the answer that had it.
        lacks = request.owned is not None and request.owned != member.assigned.tasks
        tells_tasks = request.epoch == JOIN or has_new or lacks
        if (request.epoch == JOIN or has_new) and member.endpoint is not None:
            group.endpoint_epoch += 1
        assert group.configured is not None, group.group_id
        return StreamsHeartbeatResult(
            GroupError.NONE,
            "",
            member.member_id,
            member.epoch,
            rules.timing.heartbeat_interval_ms,
            tuple(_statuses(group, member, delayed)),
            member.assigned.tasks if tells_tasks else None,
            group.endpoint_epoch,
            group.endpoints() if group.endpoint_epoch != request.endpoint_epoch else None,
            group.configured.missing,
        )

    # --- members -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _member(group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
        member = group.members.get(request.member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID)
        return member

    def _known(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
        member = self._member(group, request)
        given = member.epoch
        # The member may have lost the answer with its epoch; it got nothing else with that answer.
        retries = request.epoch == member.previous_epoch and owns_no_more_than(request.owned, member.assigned)
        if request.epoch > given or (request.epoch < given and not retries):
            raise Refused(
                GroupError.FENCED_MEMBER_EPOCH,
                f"The member's epoch is {given}, not {request.epoch}: it has to give all up and join again.",
            )
        return member

    def _joining(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsMember:
        """The member that joins, or joins again."""
        known = group.members.get(request.member_id)
        if known is not None:
            return known
        if len(group.members) >= self._members_max:
            raise Refused(
                GroupError.GROUP_MAX_SIZE_REACHED,
                f"The group has {self._members_max} members, as many as it may.",
            )
        member = StreamsMember(request.member_id)
        _note(member, request)
        tasks = sum(group.configured.tasks.values()) if group.configured is not None else 0
        if not group.memory.has_room(member.size_bytes + TASK_BYTES * tasks):
            raise Refused(GroupError.COORDINATOR_NOT_AVAILABLE, "There is no memory left for more members.")
        return member

    # --- topics and assignments --------------------------------------------------------------------------------------

    def _look_at_topics(self, group: StreamsGroup) -> bool:
        """Look up the topics again if that is due; returns whether topics or their partitions have changed."""
        now_s = self._clock.monotonic()
        is_late = group.known_changes != self._catalogue.changes and now_s >= group.known_at_s + _LOOK_UP_S
        if group.configured is not None and not is_late:
            return False
        assert group.topology is not None, group.group_id
        named = ((name, self._catalogue.found(group.full_name(name))) for name in group.topology.names)
        known = {name: found for name, found in named if found is not None}
        if group.configured is None or known != group.known:
            try:
                found = configured(group.topology, lambda name: known[name][1] if name in known else None)
            except InvalidTopology as error:
                raise Refused(GroupError.STREAMS_INVALID_TOPOLOGY, str(error)) from None
            group.configured, group.known = found, known
            group.known_changes, group.known_at_s = self._catalogue.changes, now_s
            return True
        group.known_changes, group.known_at_s = self._catalogue.changes, now_s
        return False

    def _assign_if_due(self, group: StreamsGroup) -> str:
        """Compute the target if it is missing and due; returns the reason if it is not due yet."""
        now_s = self._clock.monotonic()
        if group.delayed_until_s is not None:
            if now_s < group.delayed_until_s:
                return _FOR_MEMBERS
            group.delayed_until_s = None
        if group.epoch == group.assignment_epoch or group.is_assigning:
            return ""
        pause_s = self._rules(group.group_id).timing.assignment_interval_ms / 1000
        if group.target and group.assigned_at_s is not None and now_s < group.assigned_at_s + pause_s:
            return _FOR_THE_INTERVAL
        group.assigned_at_s = now_s
        job = Assigning(group)
        if job.cost <= AT_ONCE_MAX:
            group.install(job.compute(), job.epoch)
        else:
            group.is_assigning = True
            self._background.assign_later(group, job.compute, partial(self._assigned, group, job.epoch))
        return ""

    @staticmethod
    def _assigned(group: StreamsGroup, epoch: int, target: Assignments) -> None:
        """Install a target that a thread has computed, without members that have left meanwhile."""
        group.is_assigning = False
        if not group.is_dead:
            group.install({name: tasks for name, tasks in target.items() if name in group.members}, epoch)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def _leave(self, group: StreamsGroup, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        member = self._member(group, request)
        if request.shuts_down and group.shut_down_by is None:
            group.shut_down_by = member.member_id
        self._remove(group, member)
        return StreamsHeartbeatResult(GroupError.NONE, "", request.member_id, request.epoch)

    def _remove(self, group: StreamsGroup, member: StreamsMember) -> None:
        group.remove(member, self._clock.now_ms())
        group.bump()
        if not group.members:
            self._on_settled(group)


def _note(member: StreamsMember, request: StreamsHeartbeat) -> None:
    """Note what the member says about itself; fields that it leaves out stay as they are."""
    member.client_id, member.client_host = request.client_id, request.client_host
    if request.rack_id is not None:
        member.rack_id = request.rack_id
    if request.rebalance_timeout_ms != -1:
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
    if request.topology is not None:
        member.topology_epoch = request.topology.epoch
    if request.process_id is not None:
        member.process_id = request.process_id
    if request.endpoint is not None:
        member.endpoint = request.endpoint
    if request.tags is not None:
        member.tags = request.tags


def _check_topology(group: StreamsGroup, request: StreamsHeartbeat) -> None:
    """Check a member's topology.  It may be older, and the member's status says so; a newer one needs a new group."""
    topology = request.topology
    assert group.topology is not None, group.group_id
    if topology is not None and topology.epoch >= group.topology.epoch and topology != group.topology:
        raise Refused(
            GroupError.INVALID_REQUEST,
            "Topology updates are not supported yet: the group has another topology. An application that has changed"
            " needs another application id, or its group is deleted first.",
        )


def _check_tasks(group: StreamsGroup, owned: Tasks | None) -> None:
    """Check that the tasks that a member says it has exist."""
    if owned is None or group.configured is None or not group.is_ready:
        return
    counts = group.configured.tasks
    for subtopology, index in (*owned.active, *owned.standby):
        if subtopology not in counts:
            raise Refused(
                GroupError.INVALID_REQUEST, f"Subtopology {subtopology} does not exist in the topology."
            )
        if not 0 <= index < counts[subtopology]:
            raise Refused(
                GroupError.INVALID_REQUEST,
                f"Task {index} for subtopology {subtopology} is invalid. Number of tasks for this subtopology:"
                f" {counts[subtopology]}",
            )


def _statuses(group: StreamsGroup, member: StreamsMember, delayed: str) -> list[tuple[StreamsStatus, str]]:
    assert group.topology is not None, group.group_id
    assert group.configured is not None, group.group_id
    statuses = []
    if member.topology_epoch < group.topology.epoch:
        statuses.append(
            (
                StreamsStatus.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
                f" {group.topology.epoch}.",
            )
        )
    if delayed:
        statuses.append((StreamsStatus.ASSIGNMENT_DELAYED, delayed))
    if group.configured.problem is not None:
        statuses.append(group.configured.problem)
    if group.shut_down_by is not None:
        statuses.append(
            (
                StreamsStatus.SHUTDOWN_APPLICATION,
                f"Streams group member {group.shut_down_by} encountered a fatal error and requested a shutdown for the"
                " entire application.",
            )
        )
    return statuses
