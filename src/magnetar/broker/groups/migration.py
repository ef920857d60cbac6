"""The migration of groups with members from one protocol to the other (KIP-848).

* A classic group of consumers becomes a group of the consumer protocol when a member of that protocol joins.  The
  others stay classic members with their assignments, and learn from their next request that they must join again.
* A group of the consumer protocol becomes a classic one when its last member of that protocol has left.  The others
  join again, and one of them assigns.

Generations and epochs continue to ascend.
"""

from collections.abc import Callable
from typing import Final

from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.consumer.embedded import Embedded, Malformed, assigned, assignment, subscription
from magnetar.broker.groups.consumer.group import ClassicPart, ConsumerGroup, ConsumerMember, Held
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group, Member
from magnetar.broker.groups.memory import MembersMemory
from magnetar.broker.groups.model import JoinRequest, JoinResult, SyncResult
from magnetar.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE

MEMBERS_MAX: Final = 1_000  # migrated in one step of the loop, in 30 ms


def upgraded(
    group: Group,
    now_ms: int,
    catalogue: TopicCatalogue,
    full_name: Callable[[str], str],
    memory: MembersMemory,
) -> ConsumerGroup | str:
    """The group of the consumer protocol that replaces `group`, which has no members then; or why that is not
    possible.  Parked requests of members are answered with REBALANCE_IN_PROGRESS.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return "The group's members are no consumers."
    if len(group.members) > MEMBERS_MAX:
        return f"A group of more than {MEMBERS_MAX} members keeps its protocol while they are there."
    said: dict[str, Embedded] = {}
    try:
        for member in group.members.values():
            metadata = member.metadata(group.protocol_name) or member.protocols[0][1]
            said[member.member_id] = subscription(metadata, full_name)
    except Malformed as error:
        return f"What a member says of itself cannot be read: {error}"
    made = ConsumerGroup(group.group_id, now_ms, epoch=group.generation, memory=memory)
    made.memory.belongs_to(group.memory.owner)
    made.epochs_stored = made.epochs_asked = 0  # none of its generations was stored as an epoch
    for member in list(group.members.values()):
        _answer(group, member)
        its = said[member.member_id]
        topics = tuple(map(full_name, its.names))
        names = made.subscription(its.names, topics, None, member.viewer)
        one = ConsumerMember(member.member_id, member.group_instance_id, names)
        one.rack_id = its.rack_id
        one.client_id, one.client_host = member.client_id, member.client_host
        one.rebalance_timeout_ms = member.rebalance_timeout_ms
        one.epoch = one.previous_epoch = made.assignment_epoch
        made.add(one, now_ms)
        made.speak(one, ClassicPart(member.protocols, member.session_timeout_ms, its.version))
        given = assigned(member.assignment, full_name)
        seen = {topic: partitions for topic, partitions in given.items() if member.viewer.may_see(topic)}
        made.hold(one, _held(made, seen, catalogue), {})
        made.target[one.member_id] = {topic: set(held) for topic, held in one.assigned.items()}
        group.remove(member.member_id)
    group.stop_timers()
    return made


def _answer(group: Group, member: Member) -> None:
    group.answer_join(member, JoinResult(GroupError.REBALANCE_IN_PROGRESS, member.member_id))
    member.answer_sync(SyncResult(GroupError.REBALANCE_IN_PROGRESS))


def _held(group: ConsumerGroup, assigned: dict[str, set[int]], catalogue: TopicCatalogue) -> Held:
    """The partitions that a leader assigned to a member, without those that do not exist or have another owner."""
    held: Held = {}
    for name, partitions in assigned.items():
        found = catalogue.found(name)
        if found is None:
            continue
        topic, count = found
        taken = group.holders.get(topic, {})
        free = [one for one in partitions if 0 <= one < count and one not in taken]
        if free:
            held[topic] = dict.fromkeys(free, group.assignment_epoch)
    return held


def downgraded(group: ConsumerGroup, made: Group, now_ms: int, catalogue: TopicCatalogue) -> None:
    """Move the members of `group`, which all speak the classic protocol, to `made`, which is empty."""
    assignments: dict[str, bytes] = {}
    made.memory.belongs_to(group.memory.owner)
    for one in list(group.members.values()):
        part = one.classic
        assert part is not None, one.member_id
        request = JoinRequest(
            group.group_id,
            one.member_id,
            CONSUMER_PROTOCOL_TYPE,
            part.protocols,
            part.session_timeout_ms,
            one.rebalance_timeout_ms,
            one.client_id,
            one.client_host,
            one.instance_id,
            viewer=one.subscription.viewer,
        )
        target = group.target.get(one.member_id, {})
        named = [(catalogue.shown_name(topic), partitions) for topic, partitions in target.items()]
        assignments[one.member_id] = assignment(
            part.version, [(name, partitions) for name, partitions in named if name is not None]
        )
        group.remove(one, now_ms)
        made.add(Member(one.member_id, request), CONSUMER_PROTOCOL_TYPE)
    made.adopt(assignments, now_ms)
