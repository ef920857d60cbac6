"""Which member of a share group fetches from which partition: a pure function, as those in `consumer/assignors.py`.

Every partition of a topic with subscribers has at least one member, and every member has at least one partition of
each topic to which it subscribes.  With more members than partitions, several members share a partition; their
numbers differ by at most one.  As far as possible a member keeps its partitions.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from magnetar.base.pacing import paced
from magnetar.broker.groups.consumer.assignors import Assignments, Candidate, Partitions, TopicId


def simple(
    candidates: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """`counts`: how many partitions each topic has; `before`: the members' present partitions."""
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
    """Assign one topic; `totals` are the members' numbers of partitions so far, over all topics."""
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
        # Each partition once: those that no member has go to members with room, first to those with the fewest.
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
    """Counts how many of `things` each of `takers` may keep: an equal share, and a few of them one more."""

    def __init__(self, things: int, takers: int) -> None:
        self._each, self._extra = divmod(things, takers)
        if not self._each:  # more takers than things: one each
            self._each, self._extra = 1, 0

    def has_room(self, taken: int) -> bool:
        return taken < self._each or (taken == self._each and self._extra > 0)

    def take(self, taken: int) -> None:
        if taken == self._each:
            self._extra -= 1
