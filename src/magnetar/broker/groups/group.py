"""One consumer group: members, pending members, votes, leader and generation.

It only keeps state: `rebalance` starts timers, and decides when a rebalance begins.  What must stay true:

* a parked request is answered exactly once: code that replaces or removes a member answers its parked requests;
* `state` changes only along `PREVIOUS`;
* the leader is a member, and there is one as soon as there are members;
* member ids have a random part, and are never given twice.  So a generation that starts again at 1, after a restart or
  the deletion of the group, cannot pass for an old one.  An old request fails because of its member id.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from magnetar.base.clock import TimerHandle
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.memory import GroupMemory, MembersMemory
from magnetar.broker.groups.model import (
    NO_MEMBER,
    DescribedMember,
    GroupState,
    JoinedMember,
    JoinReply,
    JoinRequest,
    JoinResult,
    SyncReply,
    SyncResult,
)
from magnetar.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics

MEMBER_OVERHEAD_BYTES: Final = 1024  # about what objects, timers and names take

PREVIOUS: Final = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: {GroupState.EMPTY},
}


def protocols_size(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class Member:
    """A member; `is_new` until its first rebalance has completed."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline",
        "group_instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
        "timer",
        "timer_deadline",
        "viewer",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.group_instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.protocols = request.protocols
        self.viewer = request.viewer  # whose rights decide what it gets
        self.assignment = b""
        self.is_new = True
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None
        # Heartbeats come far more often than sessions end, so each only moves `deadline`, and the timer compares when
        # it fires.
        self.deadline = 0.0
        self.timer: TimerHandle | None = None
        self.timer_deadline = 0.0

    @property
    def waits(self) -> bool:
        """Whether a request of it is parked here, so that it is alive however old its last heartbeat is."""
        return self.join_reply is not None or self.sync_reply is not None

    @property
    def size(self) -> int:
        return MEMBER_OVERHEAD_BYTES + protocols_size(self.protocols) + len(self.assignment)

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def answer_sync(self, result: SyncResult) -> bool:
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(result)
        return reply is not None

    def park_sync(self, reply: SyncReply) -> None:
        self.answer_sync(SyncResult(GroupError.REBALANCE_IN_PROGRESS))  # a retry replaces the parked request
        self.sync_reply = reply

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Group:
    group_type: Final = "classic"

    def __init__(
        self,
        group_id: str,
        now_ms: int,
        *,
        generation: int = 0,
        protocol_type: str | None = None,
        canonical_topic: Callable[[str], str] = str,
        memory: MembersMemory | None = None,
    ) -> None:
        self.group_id = group_id
        self.memory = GroupMemory(memory or MembersMemory())
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # group instance id -> member id
        self.pending_members: dict[str, TimerHandle] = {}  # have an id, and have not joined with it
        self.pending_syncs: set[str] = set()  # have joined this generation, and not synced
        self.joining: set[str] = set()  # members whose join is parked
        self.new_member_added = False
        # Full names of the topics that members consume; None: not known.
        self.subscribed: frozenset[str] | None = (
            frozenset() if protocol_type == CONSUMER_PROTOCOL_TYPE else None
        )
        self.join_timer: TimerHandle | None = None
        self.sync_timer: TimerHandle | None = None
        self._canonical_topic = canonical_topic
        self._supporters: Counter[str] = Counter()  # protocol name -> how many members support it

    # state

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in PREVIOUS[state], (self.group_id, self.state, state)
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    @property
    def has_pending_members(self) -> bool:
        return bool(self.pending_members)

    def die(self, now_ms: int) -> None:
        """End the group, because it is deleted, or replaced by a group of the other protocol."""
        for member_id in list(self.pending_members):
            self.drop_pending(member_id)
        self.move_to(GroupState.DEAD, now_ms)

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS[GroupState.PREPARING_REBALANCE]

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and len(self.joining) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def cancel_join_timer(self) -> None:
        if self.join_timer is not None:
            self.join_timer.cancel()
            self.join_timer = None

    def cancel_sync_timer(self) -> None:
        if self.sync_timer is not None:
            self.sync_timer.cancel()
            self.sync_timer = None

    def stop_timers(self) -> None:
        self.cancel_join_timer()
        self.cancel_sync_timer()
        for member in self.members.values():
            member.stop_timer()
        for timer in self.pending_members.values():
            timer.cancel()

    # members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, member.group_instance_id
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.memory.used += member.size
        self._supporters.update({name for name, _ in member.protocols})
        self.drop_pending(member.member_id)

    def update(self, member: Member, request: JoinRequest) -> None:
        self._withdraw(member)
        self.memory.used -= member.size
        member.protocols = request.protocols
        member.viewer = request.viewer
        self.memory.used += member.size
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._supporters.update({name for name, _ in member.protocols})

    def assign(self, member: Member, assignment: bytes) -> None:
        self.memory.used += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def park_join(self, member: Member, reply: JoinReply) -> None:
        # A retry replaces the parked request.  A client that waits for the answer to that one keeps its member id,
        # and joins again.
        self.answer_join(member, JoinResult(GroupError.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_reply = reply
        self.joining.add(member.member_id)

    def answer_join(self, member: Member, result: JoinResult) -> None:
        reply, member.join_reply = member.join_reply, None
        self.joining.discard(member.member_id)
        if reply is not None:
            reply(result)

    def remove(self, member_id: str) -> None:
        """Forget a member or pending member; its parked requests are answered with UNKNOWN_MEMBER_ID."""
        error = GroupError.UNKNOWN_MEMBER_ID
        self.drop_pending(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        member.stop_timer()
        self.answer_join(member, JoinResult(error, NO_MEMBER))
        member.answer_sync(SyncResult(error))
        self._withdraw(member)
        self.memory.used -= member.size
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Give a static member's place to its next incarnation; the old one is fenced."""
        old = self.members.pop(old_id)
        old.stop_timer()
        self.answer_join(old, JoinResult(GroupError.FENCED_INSTANCE_ID, old_id))
        old.answer_sync(SyncResult(GroupError.FENCED_INSTANCE_ID))
        old.member_id = new_id
        old.is_new = False
        self.members[new_id] = old
        if old.group_instance_id is not None:
            self.static_members[old.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        return old

    def add_pending(self, member_id: str, timer: TimerHandle) -> None:
        """Note a member id that a client got and must join with."""
        self.pending_members[member_id] = timer
        self.memory.used += MEMBER_OVERHEAD_BYTES + len(member_id)

    def drop_pending(self, member_id: str) -> bool:
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            self.memory.used -= MEMBER_OVERHEAD_BYTES + len(member_id)
            timer.cancel()
        return timer is not None

    def check_member(self, member_id: str, group_instance_id: str | None) -> GroupError:
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return GroupError.UNKNOWN_MEMBER_ID
            if current != member_id:
                return GroupError.FENCED_INSTANCE_ID
        return GroupError.NONE if member_id in self.members else GroupError.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else make the first joined member the leader; false if none has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_reply is None:
            joined = next((m.member_id for m in self.members.values() if m.join_reply is not None), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    # protocols

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(self._supporters[name] == count for name in names)

    def select_protocol(self) -> str:
        """Select a protocol: each member votes for the first of its protocols that all support, and the most votes
        win.
        """
        count = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if self._supporters[name] == count)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _withdraw(self, member: Member) -> None:
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def adopt(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Take over assignments of members that come from a group of the consumer protocol."""
        assert self.state is GroupState.EMPTY, self.state
        self.protocol_name = self.select_protocol()
        self.previous_state, self.state, self.state_since_ms = self.state, GroupState.STABLE, now_ms
        for member in self.members.values():
            member.is_new = False
            self.assign(member, assignments[member.member_id])
        self.subscribed = self._subscribed_topics()

    def begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.move_to(GroupState.EMPTY, now_ms)
        self.subscribed = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            names = subscribed_topics(member.metadata(self.protocol_name))
            if names is None:
                return None
            topics.update(map(self._canonical_topic, names))
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members consume `topic` (full name); true if the group's consumers do not say what they consume."""
        if self.subscribed is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed

    def offsets_kept_from_ms(self, committed_ms: int) -> int | None:
        """From which time the retention of an offset runs that the group does not consume; None if it does not
        expire.
        """
        if self.protocol_type and self.state is GroupState.EMPTY:
            return self.state_since_ms
        if not self.protocol_type or (self.state is GroupState.STABLE and self.subscribed is not None):
            return committed_ms
        return None

    # views

    def joined_members(self) -> tuple[JoinedMember, ...]:
        name = self.protocol_name
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(name)) for m in self.members.values()
        )

    def described_members(self) -> tuple[DescribedMember, ...]:
        stable = self.state is GroupState.STABLE
        return tuple(
            DescribedMember(
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.metadata(self.protocol_name) if stable else b"",
                m.assignment if stable else b"",
            )
            for m in self.members.values()
        )
