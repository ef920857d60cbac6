"""Which member of a share group fetches of which partition: a pure function, as those in `consumer/assignors.py`.

Every partition with subscribers has at least one member, and every member something of each topic that has partitions.
With more members than partitions, several fetch of one: as many of each, give or take one.  What a member had it keeps,
as far as that goes.
"""

import heapq
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
    member_places = _Places(count, len(members))
    partition_places = _Places(len(members), count)
    given: dict[str, set[int]] = {}
    sharers = [0] * count
    for member in paced(members):
        mine = given[member] = set()
        for partition in sorted(before.get(member, {}).get(topic, ())):
            if (
                partition < count
                and member_places.has_room(len(mine))
                and partition_places.has_room(sharers[partition])
            ):
                member_places.take(len(mine))
                partition_places.take(sharers[partition])
                mine.add(partition)
                sharers[partition] += 1
    by_load = sorted(members, key=lambda member: (len(given[member]), totals[member]))
    if count >= len(members):
        # Each partition once: those that no member has go to members with room, the least burdened first.
        turns = [(len(given[member]), place) for place, member in enumerate(by_load)]
        heapq.heapify(turns)
        for partition in [one for one in range(count) if not sharers[one]]:
            size, place = heapq.heappop(turns)
            given[by_load[place]].add(partition)
            heapq.heappush(turns, (size + 1, place))
    else:
        order = [(shared, partition) for partition, shared in enumerate(sharers)]
        heapq.heapify(order)
        for member in [one for one in members if not given[one]]:
            shared, partition = heapq.heappop(order)
            given[member].add(partition)
            heapq.heappush(order, (shared + 1, partition))
    for member, partitions in given.items():
        if partitions:
            assigned[member][topic] = partitions
            totals[member] += len(partitions)


class _Places:
    """How many of `things` each of some `takers` may keep: as many as the others, and a few of them one more."""

    def __init__(self, things: int, takers: int) -> None:
        self._each, self._extra = divmod(things, takers)
        if not self._each:  # one, as it takes more takers than there are things
            self._each, self._extra = 1, 0

    def has_room(self, taken: int) -> bool:
        return taken < self._each or (taken == self._each and self._extra > 0)

    def take(self, taken: int) -> None:
        if taken == self._each:
            self._extra -= 1
