"""Which member gets which partition: pure functions of subscriptions, partitions and the previous assignment.

Every partition of a topic with subscribers gets exactly one owner, which subscribes to it; no other partition is
assigned.

* `uniform` gives all members the same number of partitions, with a difference of at most one, as far as subscriptions
  allow it.  It moves no partition without need.
* `by_range` gives each subscriber of a topic a run of neighbouring partitions; if the number does not divide evenly,
  the first members get one more.  So topics with equally many partitions and the same subscribers are divided in the
  same way.

Static members come first, ordered by instance id, so that their place does not change with their member id.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, TypeAlias

from magnetar.base.pacing import paced

TopicId: TypeAlias = bytes
Partitions: TypeAlias = Mapping[TopicId, AbstractSet[int]]
Assignments: TypeAlias = dict[str, dict[TopicId, set[int]]]

# Each pass makes loads more even, and a few are enough; the limit is for subscriptions designed to cost much time.
_PASSES_MAX: Final = 20


class Candidate(NamedTuple):
    """A member that can get partitions; `topics` are the existing topics to which it subscribes."""

    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]


Assignor: TypeAlias = Callable[
    [Sequence[Candidate], Mapping[TopicId, int], Mapping[str, Partitions]], Assignments
]


def by_range(
    candidates: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """`counts`: how many partitions each topic has; `before` is not used."""
    assigned: Assignments = {one.member_id: {} for one in candidates}
    for topic, subscribers in _subscribers(candidates).items():
        base, extra = divmod(counts[topic], len(subscribers))
        first = 0
        for place, member_id in enumerate(paced(subscribers)):
            share = base + (place < extra)
            if not share:
                break
            assigned[member_id][topic] = set(range(first, first + share))
            first += share
    return assigned


def uniform(
    candidates: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """`counts`: how many partitions each topic has; `before`: the previous target, by member id."""
    if len({one.topics for one in candidates}) == 1:
        return _uniform_over_same(_in_order(candidates), counts, before)
    return _uniform_over_different(candidates, counts, before)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": by_range}


def _in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))


def _subscribers(candidates: Sequence[Candidate]) -> dict[TopicId, list[str]]:
    """The ids of each topic's subscribers, ordered; the topics are ordered, too."""
    found: defaultdict[TopicId, list[str]] = defaultdict(list)
    for one in _in_order(candidates):
        for topic in one.topics:
            found[topic].append(one.member_id)
    return {topic: found[topic] for topic in sorted(found)}


def _uniform_over_same(
    members: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """For members that all subscribe to the same topics: each keeps its partitions, up to its share, and gets what it
    lacks.
    """
    topics = sorted(members[0].topics)
    base, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    assigned: Assignments = {}
    free = {topic: set(range(counts[topic])) for topic in topics}
    loads: dict[str, int] = {}
    for one in paced(members):
        had = before.get(one.member_id, {})
        kept: dict[TopicId, set[int]] = {}
        room = base + (extra > 0)
        for topic in sorted(one.topics & had.keys()):
            left = free[topic]
            mine = sorted(left.intersection(had[topic]))[:room]
            if mine:
                kept[topic] = set(mine)
                left.difference_update(mine)
                room -= len(mine)
        load = loads[one.member_id] = base + (extra > 0) - room
        extra -= load > base
        assigned[one.member_id] = kept
    # Members below the share get free partitions, one after the other; any that remain go to one member each.
    needy = deque((base - load, member_id) for member_id, load in loads.items() if load < base)
    full = deque(member_id for member_id, load in loads.items() if load <= base)
    for topic in topics:
        for index in paced(sorted(free[topic])):
            if needy:
                lacks, member_id = needy.popleft()
                if lacks > 1:
                    needy.append((lacks - 1, member_id))
            else:
                member_id = full.popleft()
            assigned[member_id].setdefault(topic, set()).add(index)
    return assigned


def _uniform_over_different(
    candidates: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """Each member keeps what it may; free partitions go to the subscriber with the fewest; then loads are made even."""
    subscribers = _subscribers(candidates)
    free = {topic: set(range(counts[topic])) for topic in subscribers}
    assigned: Assignments = {}
    for one in paced(_in_order(candidates)):
        had = before.get(one.member_id, {})
        kept = {}
        for topic in one.topics & had.keys():
            if mine := free[topic].intersection(had[topic]):
                kept[topic] = mine
                free[topic] -= mine
        assigned[one.member_id] = kept
    loads = {member_id: sum(map(len, kept.values())) for member_id, kept in assigned.items()}
    # Topics with few subscribers first, because their partitions have the fewest possible owners.
    for topic in sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic)):
        if free[topic]:
            heap = [(loads[member_id], place) for place, member_id in enumerate(subscribers[topic])]
            heapq.heapify(heap)
            for index in paced(sorted(free[topic])):
                load, place = heap[0]
                member_id = subscribers[topic][place]
                assigned[member_id].setdefault(topic, set()).add(index)
                loads[member_id] = load + 1
                heapq.heapreplace(heap, (load + 1, place))
    for _ in range(_PASSES_MAX):
        if not sum(_made_even(topic, subscribers[topic], assigned, loads) for topic in subscribers):
            break
    return assigned


def _made_even(topic: TopicId, members: Sequence[str], assigned: Assignments, loads: dict[str, int]) -> bool:
    """Move partitions of one topic from the subscribers with the most to those with the fewest; returns whether any
    moved.
    """
    lightest = [(loads[member_id], place) for place, member_id in enumerate(paced(members))]
    heapq.heapify(lightest)
    heaviest = [
        (-loads[member_id], place)
        for place, member_id in enumerate(paced(members))
        if topic in assigned[member_id]
    ]
    heapq.heapify(heaviest)
    moved = False
    while heaviest:
        load, place = -heaviest[0][0], heaviest[0][1]
        giver = members[place]
        if load != loads[giver]:
            heapq.heapreplace(heaviest, (-loads[giver], place))
            continue
        least, taker_place = lightest[0]
        taker = members[taker_place]
        if least != loads[taker]:
            heapq.heapreplace(lightest, (loads[taker], taker_place))
            continue
        if load - least < 2:
            break
        mine = assigned[giver][topic]
        index = max(mine)
        mine.discard(index)
        assigned[taker].setdefault(topic, set()).add(index)
        loads[giver] -= 1
        loads[taker] += 1
        if mine:
            heapq.heapreplace(heaviest, (-loads[giver], place))
        else:
            del assigned[giver][topic]
            heapq.heappop(heaviest)
        heapq.heapreplace(lightest, (loads[taker], taker_place))
        moved = True
    return moved
