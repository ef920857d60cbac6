"""One group to which the server assigns partitions: its members, their subscriptions, its epochs, and the holder of
each partition.

It only keeps state: `heartbeats` starts timers and decides which member gets which partition.  What must stay true:

* a partition has one holder at most: the member to which it is assigned, or that has yet to give it back;
* no member's epoch exceeds `assignment_epoch`;
* `target` has the partitions that each member shall have at `assignment_epoch`; the members in `reconciled` have them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from magnetar.broker.groups.consumer.assignors import Assignments, Candidate, TopicId
from magnetar.broker.groups.consumer.patterns import FOUND_BYTES, PATTERN_OVERHEAD_BYTES, Pattern, PatternKey
from magnetar.broker.groups.consumer.subscription import Subscription, SubscriptionKey
from magnetar.broker.groups.epochs import EpochGroup
from magnetar.broker.groups.group import protocols_size
from magnetar.broker.groups.memory import MembersMemory
from magnetar.broker.groups.model import DescribedConsumer, GroupState
from magnetar.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from magnetar.broker.groups.viewer import Viewer
from magnetar.broker.groups.watch import WatchedMember

MEMBER_OVERHEAD_BYTES: Final = 2048  # objects, timers and ids, about
PARTITION_BYTES: Final = 200  # what is kept of a partition that is assigned
LEFT_FOR_NOW: Final = -2  # the epoch of a static member that is expected back

Held: TypeAlias = dict[TopicId, dict[int, int]]  # -> the member's epoch since which it holds it


class MemberState(Enum):
    """How far a member is on its way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"  # it must still release partitions
    UNRELEASED = "unreleased"  # others must still release partitions that it gets


def _pattern_size(pattern: Pattern) -> int:
    return PATTERN_OVERHEAD_BYTES + len(pattern.text) + FOUND_BYTES * len(pattern.topics)


class ClassicPart(NamedTuple):
    """The additional state of a member of the classic protocol: its protocols in order, and its own session time-out.

    `version` is the version of the bytes that it sends to other members (`embedded.py`).
    """

    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    version: int

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    @property
    def size_bytes(self) -> int:
        return protocols_size(self.protocols)


class ConsumerMember(WatchedMember):
    """A member; `epoch` is 0 until it is in the books, and `classic` None unless it speaks the classic protocol."""

    __slots__ = (
        "assigned",
        "assignor",
        "classic",
        "client_host",
        "client_id",
        "epoch",
        "instance_id",
        "previous_epoch",
        "rack_id",
        "revoking",
        "state",
        "subscription",
    )

    def __init__(self, member_id: str, instance_id: str | None, subscription: Subscription) -> None:
        super().__init__(member_id)
        self.instance_id = instance_id
        self.subscription = subscription
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.assignor: str | None = None
        self.classic: ClassicPart | None = None
        self.epoch = 0
        self.previous_epoch = 0
        self.state = MemberState.STABLE
        self.assigned: Held = {}
        self.revoking: Held = {}

    def holds_since(self, topic: TopicId, partition: int) -> int | None:
        """The epoch at which it got a partition that it holds or must still release; None if it has neither."""
        since = self.assigned.get(topic, {}).get(partition)
        return self.revoking.get(topic, {}).get(partition) if since is None else since


class AssignedGroup(EpochGroup):
    """See the module's text."""

    def __init__(
        self, group_id: str, now_ms: int, *, epoch: int = 0, memory: MembersMemory | None = None
    ) -> None:
        super().__init__(group_id, now_ms, epoch=epoch, memory=memory)
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.target: Assignments = {}
        self.holders: dict[TopicId, dict[int, str]] = {}
        self.known: dict[str, tuple[TopicId, int]] = {}  # subscribed topics that exist: id, partitions
        self.known_changes = -1  # the change of the catalogue at which `known` was read
        self.known_at_s = 0.0
        self.is_asking = False  # for rights, beside heartbeats
        self.sees_others = False  # members may get other topics than when `known` was read
        self.gathers_until_s = 0.0  # until then it waits for its first members, and has no topics
        self.classic_count = 0  # members of the classic protocol
        self._classic_protocols: Counter[str] = Counter()  # name -> how many of them support it
        self.name_count = 0  # in all subscriptions
        self._subscriptions: dict[SubscriptionKey, Subscription] = {}
        self._patterns: dict[PatternKey, Pattern] = {}
        self._topics: Counter[str] = Counter()  # full names -> how many subscriptions have them

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch or self.owes_epoch:
            return GroupState.ASSIGNING
        if len(self.reconciled) < len(self.members):
            return GroupState.RECONCILING
        return GroupState.STABLE

    def stop_timers(self) -> None:
        for member in self.members.values():
            member.stop_timers()

    def die(self, now_ms: int) -> None:
        """End the group, because it is deleted, or replaced by a group of the other protocol."""
        assert not self.members, self.group_id
        self.state_since_ms = now_ms
        self.is_dead = True

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def unasked(self, rights_changes: int) -> list[Subscription]:
        """The subscriptions whose rights are to be asked for, as these have changed since."""
        return [one for one in self._subscriptions.values() if one.asked_at != rights_changes]

    def asked(self) -> None:
        """Rights were asked for beside heartbeats: the next one sees whether that is a change."""
        self.known_changes, self.known_at_s = -1, -math.inf

    @property
    def topics(self) -> Iterable[str]:
        """The full names of all topics to which members subscribe and which they may see."""
        return {topic for one in self._subscriptions.values() for topic in one.all_topics}

    def size_of(self, subscription: Subscription) -> int:
        """The bytes that a member with this subscription would add."""
        size = MEMBER_OVERHEAD_BYTES + (0 if subscription.users else subscription.size_bytes)
        if subscription.pattern is not None and not subscription.pattern.users:
            size += _pattern_size(subscription.pattern)
        return size

    def subscription(
        self,
        names: tuple[str, ...],
        topics: tuple[str, ...],
        pattern: Pattern | None,
        viewer: Viewer,
    ) -> Subscription:
        """The shared object of this subscription; it counts as used only after `add` or `subscribe`."""
        made = Subscription(names, topics, pattern, viewer)
        return self._subscriptions.get(made.key, made)

    def pattern(self, text: str, viewer: Viewer) -> Pattern | None:
        """The pattern with this text of members with the same rights; None if there is none."""
        return self._patterns.get((text, viewer.key))

    def resolved(self, pattern: Pattern, topics: frozenset[str]) -> None:
        """Note the topics that a pattern finds now; the next heartbeat sees whether that is a change."""
        if pattern.users:
            self._count(pattern.topics, -1)
            self._count(topics, 1)
            self.memory.used += FOUND_BYTES * (len(topics) - len(pattern.topics))
        pattern.topics = topics
        self.known_changes, self.known_at_s = -1, -math.inf

    def _count(self, topics: Iterable[str], users: int) -> None:
        for topic in topics:
            self._topics[topic] += users
            if not self._topics[topic]:
                del self._topics[topic]

    def _use(self, subscription: Subscription) -> None:
        subscription.users += 1
        if subscription.users > 1:
            return
        self._subscriptions[subscription.key] = subscription
        self.name_count += len(subscription.names)
        self.memory.used += subscription.size_bytes
        self._count(dict.fromkeys(subscription.topics), 1)
        pattern = subscription.pattern
        if pattern is not None:
            pattern.users += 1
            if pattern.users == 1:
                self._patterns[pattern.key] = pattern
                self.memory.used += _pattern_size(pattern)
                self._count(pattern.topics, 1)

    def _leave(self, subscription: Subscription) -> None:
        subscription.users -= 1
        if subscription.users:
            return
        del self._subscriptions[subscription.key]
        self.name_count -= len(subscription.names)
        self.memory.used -= subscription.size_bytes
        self._count(dict.fromkeys(subscription.topics), -1)
        pattern = subscription.pattern
        if pattern is not None:
            pattern.users -= 1
            if not pattern.users:
                del self._patterns[pattern.key]
                self.memory.used -= _pattern_size(pattern)
                self._count(pattern.topics, -1)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members consume `topic` (full name)."""
        return topic in self._topics

    def candidates(self, known: Mapping[str, tuple[TopicId, int]]) -> list[Candidate]:
        """The members in the form that assignors take, for the topics in `known`."""
        found = {
            id(one): frozenset([known[topic][0] for topic in one.all_topics if topic in known])
            for one in self._subscriptions.values()
        }
        return [
            Candidate(one.member_id, one.instance_id, found[id(one.subscription)])
            for one in self.members.values()
        ]

    # --- members -----------------------------------------------------------------------------------------------------

    def add(self, member: ConsumerMember, now_ms: int) -> None:
        if not self.members:
            self.state_since_ms = now_ms
        self.members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, member.instance_id
            self.static_members[member.instance_id] = member.member_id
        self.memory.used += MEMBER_OVERHEAD_BYTES
        self._use(member.subscription)

    def speak(self, member: ConsumerMember, classic: ClassicPart | None) -> None:
        """Note that the member now speaks the classic protocol, with this state, or (None) the consumer protocol."""
        if member.classic is not None:
            self.classic_count -= 1
            self.memory.used -= member.classic.size_bytes
            self._classic_protocols.subtract(member.classic.names)
        member.classic = classic
        if classic is not None:
            self.classic_count += 1
            self.memory.used += classic.size_bytes
            self._classic_protocols.update(classic.names)
        self._classic_protocols += Counter()

    def supports(self, protocols: Iterable[str]) -> bool:
        """Whether all members of the classic protocol support one of these protocols."""
        return any(self._classic_protocols[name] == self.classic_count for name in protocols)

    @property
    def is_all_classic(self) -> bool:
        """Whether there are members, and none speaks the consumer protocol."""
        return bool(self.members) and self.classic_count == len(self.members)

    def lacks_what_is_free(self, member: ConsumerMember) -> bool:
        """Whether the member would get all partitions that it still lacks if it asked now."""
        target = self.target.get(member.member_id, {})
        missing = [
            (topic, one)
            for topic, wanted in target.items()
            for one in wanted - member.assigned.get(topic, {}).keys()
        ]
        return bool(missing) and not any(one in self.holders.get(topic, {}) for topic, one in missing)

    def subscribe(self, member: ConsumerMember, subscription: Subscription) -> None:
        self._use(subscription)
        self._leave(member.subscription)
        member.subscription = subscription

    def remove(self, member: ConsumerMember, now_ms: int) -> None:
        """Forget a member; its partitions are free."""
        member.stop_timers()
        self.speak(member, None)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self.reconciled.discard(member.member_id)
        self.hold(member, {}, {})
        self.target.pop(member.member_id, None)
        self.memory.used -= MEMBER_OVERHEAD_BYTES
        self._leave(member.subscription)
        if not self.members:
            self.state_since_ms = now_ms

    def replace_static(self, old: ConsumerMember, new_id: str) -> None:
        """Give a static member's place, with all that it has, to its next incarnation."""
        old_id = old.member_id
        del self.members[old_id]
        old.member_id = new_id
        old.epoch = old.previous_epoch = 0
        self.members[new_id] = old
        if old.instance_id is not None:
            self.static_members[old.instance_id] = new_id
        self.reconciled.discard(old_id)
        for held in (old.assigned, old.revoking):
            for topic, partitions in held.items():
                self.holders[topic].update(dict.fromkeys(partitions, new_id))
        if old_id in self.target:
            self.target[new_id] = self.target.pop(old_id)

    # --- partitions --------------------------------------------------------------------------------------------------

    def hold(self, member: ConsumerMember, assigned: Held, revoking: Held) -> None:
        """Record the partitions that the member holds now."""
        for held in (member.assigned, member.revoking):
            for topic, partitions in held.items():
                holders = self.holders[topic]
                for partition in partitions:
                    del holders[partition]
                self.memory.used -= PARTITION_BYTES * len(partitions)
                if not holders:
                    del self.holders[topic]
        member.assigned, member.revoking = assigned, revoking
        for held in (assigned, revoking):
            for topic, partitions in held.items():
                self.holders.setdefault(topic, {}).update(dict.fromkeys(partitions, member.member_id))
                self.memory.used += PARTITION_BYTES * len(partitions)

    def install(self, target: Assignments, epoch: int) -> None:
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

    def preferred_assignor(self, known: Iterable[str]) -> str:
        """The assignor that most members ask for; the first of `known` if they ask for none."""
        names = list(known)
        votes = Counter(one.assignor for one in self.members.values() if one.assignor in names)
        return max(names, key=lambda name: votes[name])

    def described(
        self, member: ConsumerMember, name_of: Callable[[TopicId], str | None]
    ) -> DescribedConsumer:
        """A description of a member as it is now, without topics that are gone."""
        has = {**member.assigned}
        for topic, partitions in member.revoking.items():
            has[topic] = {**has.get(topic, {}), **partitions}
        return DescribedConsumer(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            member.subscription.names,
            "" if member.subscription.pattern is None else member.subscription.pattern.text,
            member.subscription.topics,
            _shown(has, name_of),
            _shown(self.target.get(member.member_id, {}), name_of),
            member.classic is not None,
        )


class ConsumerGroup(AssignedGroup):
    """A group of the consumer protocol."""

    group_type = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE


def _shown(
    partitions: Mapping[TopicId, Iterable[int]], name_of: Callable[[TopicId], str | None]
) -> list[tuple[TopicId, str, list[int]]]:
    named = ((topic, name_of(topic), sorted(partitions[topic])) for topic in sorted(partitions))
    return [(topic, name, indexes) for topic, name, indexes in named if name is not None and indexes]
