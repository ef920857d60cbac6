"""Which member of a share group fetches of which partition: a pure function, as those in `consumer/assignors.py`.

Every partition with subscribers has at least one member, and every member something of each topic that has partitions.
With more members than partitions, several fetch of one: as many of each, give or take one.  What a member had it keeps,
as far as that goes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from magnetar.base.pacing import paced
from magnetar.broker.groups.consumer.assignors import Assignments, Candidate, Partitions, TopicId


def simple(
    candidates: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """`counts`: how many partitions each topic has; `before`: what members have now."""
    assigned: Assignments = {one.member_id: {} for one in candidates}
    subscribers: dict[TopicId, list[str]] = {}
    for one in sorted(candidates):
        for topic in one.topics:
            subscribers.setdefault(topic, []).append(one.member_id)
    totals: Counter[str] = Counter()
    for topic in sorted(subscribers):
        _assign(topic, counts[topic], subscribers[topic], before, assigned, totals)
    return assigned


def _assign(
    topic: TopicId,
    count: int,
    members: Sequence[str],
    before: Mapping[str, Partitions],
    assigned: Assignments,
    totals: "Counter[str]",
) -> None:
    """One topic; `totals` are the partitions of all topics that members have so far."""
    if not count:
        return
    of_member_max = -(-count // len(members))
    of_partition_max = -(-len(members) // count)
    given: dict[str, set[int]] = {}
    sharers = [0] * count
    for member in paced(members):
        mine = given[member] = set()
        for partition in sorted(before.get(member, {}).get(topic, ())):
            if partition < count and len(mine) < of_member_max and sharers[partition] < of_partition_max:
                mine.add(partition)
                sharers[partition] += 1
    by_load = sorted(members, key=lambda member: (len(given[member]), totals[member]))
    if count >= len(members):
        # Each partition once: those that no member has go to members with room, the least burdened first.
        free = (partition for partition in range(count) if not sharers[partition])
        turns = (
            member for round_ in range(of_member_max) for member in by_load if len(given[member]) <= round_
        )
        for partition, member in zip(free, turns, strict=False):
            given[member].add(partition)
    else:
        lacking = [member for member in members if not given[member]]
        places = sorted(
            (sharers[partition] + extra, partition)
            for partition in range(count)
            for extra in range(of_partition_max - sharers[partition])
        )
        for member, (_, partition) in zip(lacking, places, strict=False):
            given[member].add(partition)
    for member, partitions in given.items():
        if partitions:
            assigned[member][topic] = partitions
            totals[member] += len(partitions)
