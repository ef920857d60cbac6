"""Requests to the coordinator and its results, independent of any protocol's bytes and versions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.viewer import Viewer

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class GroupState(Enum):
    """Values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"  # of the streams protocol: topics of its topology are missing
    ASSIGNING = "Assigning"  # of the consumer protocol, as the next one
    RECONCILING = "Reconciling"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member's request to join or to join again.

    `protocols`: name and metadata in order of preference.  `require_known_member_id`: the client understands
    MEMBER_ID_REQUIRED (KIP-394).  `supports_skip_assignment`: it understands `skip_assignment` (KIP-814).  `viewer` is
    as in `ConsumerHeartbeat`, for a group in which the server assigns.
    """

    group_id: str
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    reason: str = ""
    require_known_member_id: bool = True
    supports_skip_assignment: bool = True
    viewer: Viewer = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader learns about a member: its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    error: GroupError
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """`assignments` (member id -> assignment) counts only if the leader sends it."""

    group_id: str
    member_id: str
    generation: int
    assignments: dict[str, bytes]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    error: GroupError
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


JoinReply = Callable[[JoinResult], None]
SyncReply = Callable[[SyncResult], None]


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member to remove.  An administrator removes a static member by its instance id, with an empty member id."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    error: GroupError
    group_id: str
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """`topic_id` (hex) is the id of the topic that had the name when the client sent this; empty: the topic that has
    it now.
    """

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A commit.  `generation` -1 with an empty member id: the client does not use the group protocol.

    `retention_ms`: how long to keep the offsets; only old clients send it.
    """

    group_id: str
    offsets: Sequence[OffsetToCommit]
    member_id: str = NO_MEMBER
    generation: int = -1
    group_instance_id: str | None = None
    retention_ms: int | None = None
    knows_epochs: bool = True


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """A heartbeat of a member of the consumer protocol.  None (for the time-out: -1) means unchanged.

    `names` are as the client writes them; `topics` are their full names.  `pattern` is a regular expression, empty
    for none.  The member gets partitions only of topics that the `viewer` may see, which might see all of `topics` at
    `checked_at`, a change of rights; -1: it was not asked about.  `owned` is by topic id.  `epoch` is 0 to join, -1 to
    leave, -2 to leave for a short time.  `has_own_id`: clients of this version create their member ids themselves.
    """

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    names: tuple[str, ...] | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assignor: str | None = None
    owned: Mapping[bytes, frozenset[int]] | None = None
    client_id: str = ""
    client_host: str = ""
    has_own_id: bool = True
    checked_at: int = -1
    viewer: Viewer = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A heartbeat of a member of a share group.  None means unchanged.

    `names` are as the client writes them; `topics` are their full names.  `epoch` is 0 to join, -1 to leave.
    `viewer` and `checked_at` are as in `ConsumerHeartbeat`.
    """

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    names: tuple[str, ...] | None = None
    topics: tuple[str, ...] = ()
    client_id: str = ""
    client_host: str = ""
    checked_at: int = -1
    viewer: Viewer = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatResult:
    """`assignment` is by topic id; None if it has not changed."""

    error: GroupError
    message: str = ""
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Mapping[bytes, Iterable[int]] | None = None


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """A description of a member; partitions are given as topic id, full name and indexes."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    names: tuple[str, ...]
    pattern: str
    topics: tuple[str, ...]
    assigned: list[tuple[bytes, str, list[int]]]
    target: list[tuple[bytes, str, list[int]]]
    is_classic: bool  # it speaks the classic protocol


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """`members` is an iterator: each member is described as it is when it is read."""

    error: GroupError
    group_id: str
    state: GroupState = GroupState.DEAD
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Iterable[DescribedConsumer] = ()


# --- the streams protocol --------------------------------------------------------------------------------------------

Task: TypeAlias = tuple[str, int]  # subtopology, partition


class Tasks(NamedTuple):
    """What a member of a streams group has, or is to have."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()


class StreamsStatus(Enum):
    """What an answer says of the group; values are Kafka's codes."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic of an application's own, which the server creates.  0 partitions: their number follows from the sources;
    0 replicas: the default.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class Copartitioned(NamedTuple):
    """Topics that must have the same number of partitions, as indexes into a subtopology's sources and repartitions."""

    sources: tuple[int, ...]
    repartitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of an application that is divided into tasks; names are as the client writes them.

    `repartitions` are internal topics that it reads, `sinks` those that it writes.
    """

    subtopology_id: str
    sources: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    repartitions: tuple[InternalTopic, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    copartitioned: tuple[Copartitioned, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics whose partitions its tasks read."""
        return (*self.sources, *(topic.name for topic in self.repartitions))

    @property
    def internal_topics(self) -> tuple[InternalTopic, ...]:
        return (*self.repartitions, *self.changelogs)


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole application."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @property
    def names(self) -> "dict[str, None]":
        """All topics, each once."""
        return dict.fromkeys(
            name
            for part in self.subtopologies
            for name in (*part.inputs, *part.sinks, *(topic.name for topic in part.changelogs))
        )


@dataclass(frozen=True, slots=True)
class StreamsHeartbeat:
    """What a member of a streams group says of itself; None (-1: the time-out) is what it said before.

    `epoch` is 0 to join, -1 to leave, -2 to leave for now.  `has_offsets`: it tells how far its tasks are.
    `check_topics` is called with the names of the group's topics before the member learns anything of them; what it
    raises refuses the heartbeat.  `viewer` is the client.
    """

    group_id: str
    member_id: str
    epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active: frozenset[Task] | None = None
    standby: frozenset[Task] | None = None
    warmup: frozenset[Task] | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    has_offsets: bool = False
    shuts_down: bool = False
    client_id: str = ""
    client_host: str = ""
    viewer: Viewer = field(kw_only=True)
    check_topics: Callable[[Iterable[str]], object] = field(kw_only=True)

    @property
    def owned(self) -> Tasks | None:
        if self.active is None or self.standby is None:
            return None
        return Tasks(self.active, self.standby)


class EndpointPartitions(NamedTuple):
    """Where an instance of an application answers queries, and which partitions it has state of, by topic."""

    host: str
    port: int
    active: list[tuple[str, list[int]]]
    standby: list[tuple[str, list[int]]]


@dataclass(frozen=True, slots=True)
class StreamsHeartbeatResult:
    """`tasks` and `endpoints` are None if they have not changed; `missing` are topics that the client should create."""

    error: GroupError
    message: str = ""
    member_id: str = NO_MEMBER
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[tuple[StreamsStatus, str], ...] = ()
    tasks: Tasks | None = None
    endpoint_epoch: int = 0
    endpoints: list[EndpointPartitions] | None = None
    missing: tuple[InternalTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedStreamsMember:
    member_id: str
    epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: tuple[str, int] | None
    tags: tuple[tuple[str, str], ...]
    assigned: Tasks
    target: Tasks


@dataclass(frozen=True, slots=True)
class DescribedStreamsGroup:
    """The topology has the numbers of partitions that were decided, if they were.  `members` are made while they are
    read: each is as it is then.
    """

    error: GroupError
    group_id: str
    state: GroupState = GroupState.DEAD
    epoch: int = 0
    assignment_epoch: int = 0
    topology: Topology | None = None
    members: Iterable[DescribedStreamsMember] = ()
