"""How a member gets from its present partitions to its target, one heartbeat at a time (KIP-848).

A member that holds too many partitions releases these first, and stays at its epoch until its heartbeat confirms
that.  Then it takes the target's epoch, and the free partitions of its target.  Partitions that others must still
release come with later heartbeats.  So a partition changes its holder only after the old one has confirmed, and no
other member waits meanwhile.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from magnetar.broker.groups.consumer.assignors import Partitions, TopicId
from magnetar.broker.groups.consumer.group import AssignedGroup, ConsumerMember, Held, MemberState

_NOTHING: Final[AbstractSet[int]] = frozenset()


def reconcile(group: AssignedGroup, member: ConsumerMember, owned: Partitions | None) -> bool:
    """Take the member as far as it can go now; returns whether its assignment has changed.

    `owned`: the partitions that it says it has; None if it does not say.
    """
    if member.member_id in group.reconciled:
        return False
    before = member.assigned
    if member.state is MemberState.UNREVOKED:
        if owned is None or _overlap(owned, member.revoking):
            return False
        group.hold(member, member.assigned, {})
    _advance(group, member, owned)
    if member.state is MemberState.STABLE and member.epoch == group.assignment_epoch:
        group.reconciled.add(member.member_id)
    return _partitions(before) != _partitions(member.assigned)


def owns_no_more_than(owned: Partitions | None, held: Held) -> bool:
    """Whether the member says what it has, and has only partitions that it got."""
    return owned is not None and all(owned[topic] <= held.get(topic, {}).keys() for topic in owned)


def owns_all(owned: Partitions, held: Held) -> bool:
    """Whether the member says that it has exactly the partitions that it got."""
    return {topic: owned[topic] for topic in owned if owned[topic]} == _partitions(held)


def _advance(group: AssignedGroup, member: ConsumerMember, owned: Partitions | None) -> None:
    target = group.target.get(member.member_id, {})
    kept: Held = {}
    revoked: Held = {}
    for topic, partitions in member.assigned.items():
        wanted = target.get(topic, _NOTHING)
        stays = {one: since for one, since in partitions.items() if one in wanted}
        if stays:
            kept[topic] = stays
        if len(stays) < len(partitions):
            revoked[topic] = {one: since for one, since in partitions.items() if one not in wanted}
    if revoked and (owned is None or _overlap(owned, revoked)):
        member.state = MemberState.UNREVOKED
        group.hold(member, kept, revoked)
        return
    if member.epoch != group.assignment_epoch:
        member.previous_epoch, member.epoch = member.epoch, group.assignment_epoch
    is_complete = True
    for topic, partitions_wanted in target.items():
        missing = partitions_wanted - kept.get(topic, {}).keys()
        if not missing:
            continue
        holders = group.holders.get(topic, {})
        free = [one for one in missing if holders.get(one, member.member_id) == member.member_id]
        is_complete = is_complete and len(free) == len(missing)
        if free:
            kept.setdefault(topic, {}).update(dict.fromkeys(free, member.epoch))
    member.state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    group.hold(member, kept, {})


def _overlap(owned: Partitions, held: Held) -> bool:
    return any(not owned[topic].isdisjoint(held[topic]) for topic in owned.keys() & held.keys())


def _partitions(held: Held) -> Mapping[TopicId, AbstractSet[int]]:
    return {topic: partitions.keys() for topic, partitions in held.items()}
