"""What goes into the coordinator and what comes out, free of any protocol's bytes and versions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from magnetar.broker.groups.errors import GroupError

NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


class GroupState(Enum):
    """Values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member's wish to join or to rejoin.

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
    """`assignments` (member id -> assignment) counts only when it comes from the leader."""

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
    """An administrator removes a static member by its instance id alone, with an empty member id."""

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
    """`topic_id` is that of the topic that had the name when this was asked for, in hex; empty when it is meant now."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """`generation` -1 with an empty member id: a client outside of the group protocol.

    `retention_ms`: how long the offsets shall be kept, for the old clients that say so.
    """

    group_id: str
    offsets: Sequence[OffsetToCommit]
    member_id: str = NO_MEMBER
    generation: int = -1
    group_instance_id: str | None = None
    retention_ms: int | None = None
