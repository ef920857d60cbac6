"""Which member gets which partition: pure functions of subscriptions, partitions and what was assigned before.

Every partition of a topic with subscribers has exactly one owner, which subscribes to it; nothing else is assigned.

* `uniform` gives each member as many partitions as the others, give or take one, wherever subscriptions allow it, and
  leaves every other partition where it is.
* `by_range` gives each subscriber of a topic a run of neighbouring partitions, the first members one more where it does
  not come out even, so that topics of as many partitions and the same subscribers are divided in the same way.

Members that name an instance come first, by that name, so that a static member's place does not change with its id.
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

# Each pass makes loads more even, and a few are enough; the bound is for subscriptions made to be worked at for long.
_PASSES_MAX: Final = 20


class Candidate(NamedTuple):
    """A member to whom partitions can be given; `topics` are those that it subscribes to and that there are."""

    member_id: str
    instance_id: str | None
    topics: frozenset[TopicId]


Assignor: TypeAlias = Callable[
    [Sequence[Candidate], Mapping[TopicId, int], Mapping[str, Partitions]], Assignments
]


def by_range(
    candidates: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """`counts`: how many partitions each topic has; `before`, by member id, makes no difference here."""
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
    """`counts`: how many partitions each topic has; `before`: what each member was to have, by member id."""
    if len({one.topics for one in candidates}) == 1:
        return _uniform_over_same(_in_order(candidates), counts, before)
    return _uniform_over_different(candidates, counts, before)


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": by_range}


def _in_order(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))


def _subscribers(candidates: Sequence[Candidate]) -> dict[TopicId, list[str]]:
    """The ids of each topic's subscribers, in order; topics in order, too."""
    found: defaultdict[TopicId, list[str]] = defaultdict(list)
    for one in _in_order(candidates):
        for topic in one.topics:
            found[topic].append(one.member_id)
    return {topic: found[topic] for topic in sorted(found)}


def _uniform_over_same(
    members: Sequence[Candidate], counts: Mapping[TopicId, int], before: Mapping[str, Partitions]
) -> Assignments:
    """All members subscribe to the same topics: each keeps what it had, up to its share, and gets what it lacks."""
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
    """Each member keeps what it may; what is free goes to the subscriber with least; then loads are made even."""
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
    # Topics with few subscribers first: theirs cannot go elsewhere.
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
    """Move partitions of one topic from subscribers with most to those with least; whether any has moved."""
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
