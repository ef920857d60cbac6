"""One streams group: its members, its topology and tasks, its epochs, and the holder of each task.

Bookkeeping only: `heartbeats` starts the timers and decides which member gets which task.  What must stay true:

* an active task has at most one holder: the member to which it is assigned, or which must still release it;
* no two members of one process have the same task, in any role: they share the disk that has its state;
* no member's epoch exceeds `assignment_epoch`;
* `target` has the tasks that each member must have at `assignment_epoch`; the members in `reconciled` have them;
* the topology is set once: an application with another topology needs another group.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final

from magnetar.broker.groups.epochs import EpochGroup
from magnetar.broker.groups.memory import MembersMemory
from magnetar.broker.groups.model import (
    DescribedStreamsMember,
    EndpointPartitions,
    GroupState,
    InternalTopic,
    Task,
    Tasks,
    Topology,
)
from magnetar.broker.groups.streams.topics import Configured, decided
from magnetar.broker.groups.watch import WatchedMember

MEMBER_OVERHEAD_BYTES: Final = 3072  # objects, timers and ids, about
TASK_BYTES: Final = 400  # for each task that a member has
NAME_BYTES: Final = 200  # for each name of a topology, besides its letters
NO_TASKS: Final = Tasks()


class MemberState(Enum):
    """How far a member is on its way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"  # it must still release tasks
    UNRELEASED = "unreleased"  # other members must still release tasks of its target


class Held:
    """Tasks of a member; `active` also has the epoch at which the member got each task."""

    __slots__ = ("active", "standby")

    def __init__(self, active: Mapping[Task, int], standby: AbstractSet[Task]) -> None:
        self.active = active
        self.standby = standby

    def __bool__(self) -> bool:
        return bool(self.active or self.standby)

    def __len__(self) -> int:
        return len(self.active) + len(self.standby)

    @property
    def tasks(self) -> Tasks:
        return Tasks(frozenset(self.active), frozenset(self.standby))

    def overlaps(self, owned: Tasks) -> bool:
        return not owned.active.isdisjoint(self.active) or not owned.standby.isdisjoint(self.standby)


NOTHING: Final = Held({}, frozenset())


class StreamsMember(WatchedMember):
    """A member: one thread of an application."""

    __slots__ = (
        "assigned",
        "client_host",
        "client_id",
        "endpoint",
        "epoch",
        "previous_epoch",
        "process_id",
        "rack_id",
        "revoking",
        "state",
        "tags",
        "topology_epoch",
    )

    def __init__(self, member_id: str) -> None:
        super().__init__(member_id)
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.topology_epoch = 0
        self.process_id = ""
        self.endpoint: tuple[str, int] | None = None
        self.tags: tuple[tuple[str, str], ...] = ()
        self.epoch = 0
        self.previous_epoch = 0
        self.state = MemberState.STABLE
        self.assigned = NOTHING
        self.revoking = NOTHING

    @property
    def said(self) -> tuple[object, ...]:
        """All that the member says about itself: a change of it may change the targets of all members."""
        return (
            self.rack_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.topology_epoch,
            self.process_id,
            self.endpoint,
            self.tags,
        )

    @property
    def size_bytes(self) -> int:
        texts = [self.rack_id or "", self.client_id, self.process_id, *(self.endpoint or ())[:1]]
        texts += [text for pair in self.tags for text in pair]
        return MEMBER_OVERHEAD_BYTES + sum(2 * len(str(text)) + 100 for text in texts)

    def has_active_since(self, task: Task) -> int | None:
        """The epoch at which it got an active task that it has or must still release; None if it has neither."""
        since = self.assigned.active.get(task)
        return self.revoking.active.get(task) if since is None else since


class StreamsGroup(EpochGroup):
    """See the module's text.  `full_name` gives the full name of a topic as clients write it."""

    group_type = "streams"
    protocol_type = "streams"

    def __init__(
        self,
        group_id: str,
        now_ms: int,
        *,
        epoch: int = 0,
        memory: MembersMemory | None = None,
        topology: Topology | None = None,
        full_name: Callable[[str], str] = str,
    ) -> None:
        super().__init__(group_id, now_ms, epoch=epoch, memory=memory)
        self._full_name = full_name
        self.members: dict[str, StreamsMember] = {}
        self.topology: Topology | None = None
        self.configured: Configured | None = None
        self.known: dict[str, tuple[bytes, int]] = {}  # topics of the topology that exist: id, partitions
        self.known_changes = -1  # the catalogue's `changes` when they were looked up
        self.known_at_s = 0.0
        self.standbys = 0  # as of the last epoch
        self.delayed_until_s: float | None = None  # the first assignment waits for more members
        self.shut_down_by: str | None = None  # the member that wants all members to shut down
        self.endpoint_epoch = 0
        self.target: dict[str, Tasks] = {}
        self.active: dict[Task, StreamsMember] = {}
        self.standby: dict[Task, set[StreamsMember]] = {}
        self._inputs: dict[str, str] = {}  # full names -> subtopology
        if topology is not None:
            self.set_topology(topology)

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether all topics exist with the right numbers of partitions."""
        return self.configured is not None and self.configured.is_ready

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if not self.is_ready:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch or self.owes_epoch:
            return GroupState.ASSIGNING
        if len(self.reconciled) < len(self.members):
            return GroupState.RECONCILING
        return GroupState.STABLE

    def stop_timers(self) -> None:
        for member in self.members.values():
            member.stop_timers()

    def die(self, now_ms: int) -> None:
        """End the group, because it is deleted, or replaced by a group of another protocol."""
        assert not self.members, self.group_id
        self.state_since_ms = now_ms
        self.is_dead = True
        if self.topology is not None:
            self.memory.used -= topology_size(self.topology)

    # --- topology ----------------------------------------------------------------------------------------------------

    def set_topology(self, topology: Topology) -> None:
        assert self.topology is None, self.group_id
        self.topology = topology
        self.memory.used += topology_size(topology)
        self._inputs = {
            self._full_name(name): part.subtopology_id
            for part in topology.subtopologies
            for name in part.inputs
        }

    def full_name(self, name: str) -> str:
        """The full name of a topic of the topology."""
        return self._full_name(name)

    def task_of(self, topic: str, partition: int) -> Task | None:
        """The task that reads this partition (full name); None if the application does not read the topic."""
        subtopology = self._inputs.get(topic)
        return None if subtopology is None else (subtopology, partition)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members consume `topic` (full name)."""
        return bool(self.members) and topic in self._inputs

    # --- members -----------------------------------------------------------------------------------------------------

    def add(self, member: StreamsMember, now_ms: int) -> None:
        if not self.members:
            self.state_since_ms = now_ms
        self.members[member.member_id] = member
        self.memory.used += member.size_bytes

    def change(self, member: StreamsMember, change: Callable[[], None]) -> bool:
        """Call `change`, which notes what the member says about itself; returns whether anything is new."""
        said, size = member.said, member.size_bytes
        change()
        if member.member_id in self.members:
            self.memory.used += member.size_bytes - size
        return member.said != said

    def remove(self, member: StreamsMember, now_ms: int) -> None:
        """Forget a member; its tasks are free."""
        member.stop_timers()
        del self.members[member.member_id]
        self.reconciled.discard(member.member_id)
        self.hold(member, NOTHING, NOTHING)
        self.target.pop(member.member_id, None)
        self.memory.used -= member.size_bytes
        if not self.members:
            self.state_since_ms = now_ms
            self.shut_down_by = None
            self.delayed_until_s = None

    # --- tasks -------------------------------------------------------------------------------------------------------

    def hold(self, member: StreamsMember, assigned: Held, revoking: Held) -> None:
        """Record the tasks that the member holds now."""
        for held in (member.assigned, member.revoking):
            for task in held.active:
                del self.active[task]
            for task in held.standby:
                holders = self.standby[task]
                holders.discard(member)
                if not holders:
                    del self.standby[task]
            self.memory.used -= TASK_BYTES * len(held)
        member.assigned, member.revoking = assigned, revoking
        for held in (assigned, revoking):
            for task in held.active:
                self.active[task] = member
            for task in held.standby:
                self.standby.setdefault(task, set()).add(member)
            self.memory.used += TASK_BYTES * len(held)

    def is_free(self, task: Task, member: StreamsMember, *, as_active: bool) -> bool:
        """Whether the member may get this task of its target, which it does not have, now."""
        holder = self.active.get(task)
        if holder is not None and (as_active or holder.process_id == member.process_id):
            return False
        return all(one.process_id != member.process_id for one in self.standby.get(task, ()))

    def install(self, target: dict[str, Tasks], epoch: int) -> None:
        """Make this the members' target from `epoch` on."""
        self._begin_assignment(epoch)
        self.target = target

    # --- offsets -----------------------------------------------------------------------------------------------------

    def offsets_kept_from_ms(self, committed_ms: int) -> int | None:
        """From which time the retention of an offset runs that the group does not consume; None if it does not
        expire.
        """
        return committed_ms if self.members else self.state_since_ms

    # --- views -------------------------------------------------------------------------------------------------------

    @property
    def described_topology(self) -> Topology | None:
        if self.topology is None or self.configured is None or not self.configured.is_ready:
            return self.topology
        return decided(self.topology, self.configured.partitions)

    def described(self, member: StreamsMember) -> DescribedStreamsMember:
        """A description of a member as it is now."""
        return DescribedStreamsMember(
            member.member_id,
            member.epoch,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.topology_epoch,
            member.process_id,
            member.endpoint,
            member.tags,
            member.assigned.tasks,
            self.target.get(member.member_id, NO_TASKS),
        )

    def endpoints(self) -> list[EndpointPartitions]:
        """For each member with an endpoint, the partitions whose state it can be queried for."""
        parts = self.topology.subtopologies if self.topology is not None else ()
        inputs = {part.subtopology_id: part.inputs for part in parts}

        def partitions(tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
            by_topic: dict[str, list[int]] = {}
            for subtopology, index in sorted(tasks):
                for name in inputs.get(subtopology, ()):
                    if index < self.known.get(name, (b"", 0))[1]:
                        by_topic.setdefault(name, []).append(index)
            return list(by_topic.items())

        return [
            EndpointPartitions(
                *one.endpoint, partitions(one.assigned.active), partitions(one.assigned.standby)
            )
            for one in self.members.values()
            if one.endpoint is not None
        ]


def topology_size(topology: Topology) -> int:
    """The bytes that a topology counts as."""

    def size(topics: Iterable[InternalTopic]) -> int:
        return sum(
            NAME_BYTES + sum(2 * len(text) + NAME_BYTES for pair in one.configs for text in pair)
            for one in topics
        )

    names = sum(2 * len(name) + NAME_BYTES for name in topology.names)
    return names + sum(
        NAME_BYTES
        + 2 * len(part.subtopology_id)
        + size(part.internal_topics)
        + sum(NAME_BYTES * (1 + len(one.sources) + len(one.repartitions)) for one in part.copartitioned)
        for part in topology.subtopologies
    )
