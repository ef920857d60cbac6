"""Requests to the coordinator and its results, independent of any protocol's bytes and versions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from magnetar.broker.groups.errors import GroupError

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class GroupState(Enum):
    """Values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # only in the consumer protocol, as is the next one
    RECONCILING = "Reconciling"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member's request to join or to join again.

    `protocols`: name and metadata in order of preference.  `require_known_member_id`: the client understands
    MEMBER_ID_REQUIRED (KIP-394).  `supports_skip_assignment`: it understands `skip_assignment` (KIP-814).
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
    for none.  It finds topics, by full name, that the client `may_see`; `owner` names the client whose rights count.
    `owned` is by topic id.  `epoch` is 0 to join, -1 to leave, -2 to leave for a short time.  `has_own_id`: clients
    of this version create their member ids themselves.
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
    owner: str = ""
    may_see: Callable[[str], bool] = bool


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A heartbeat of a member of a share group.  None means unchanged.

    `names` are as the client writes them; `topics` are their full names.  `epoch` is 0 to join, -1 to leave.
    """

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    names: tuple[str, ...] | None = None
    topics: tuple[str, ...] = ()
    client_id: str = ""
    client_host: str = ""


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
