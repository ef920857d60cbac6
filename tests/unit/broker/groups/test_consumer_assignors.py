"""The assignors of the consumer protocol against what they promise, on random groups."""

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assignments,
    Candidate,
    Partitions,
    by_range,
    uniform,
)

TOPICS = [bytes([n]) * 16 for n in range(1, 6)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, same: bool = False) -> tuple[list[Candidate], dict[bytes, int], Assignments]:
    """Members, partitions, and what members had before: each partition one owner at most, some of them gone."""
    counts = draw(COUNTS)
    ids = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    everything = frozenset(counts)
    subsets = st.just(everything) if same else st.frozensets(st.sampled_from(sorted(counts)))
    members = [Candidate(one, draw(st.one_of(st.none(), st.just(f"i{one}"))), draw(subsets)) for one in ids]
    before: Assignments = {}
    for topic in TOPICS:
        for index in range(draw(st.integers(0, 11))):
            owner = draw(st.sampled_from([*ids, "gone", ""]))
            if owner:
                before.setdefault(owner, {}).setdefault(topic, set()).add(index)
    return members, counts, before


def rows(assigned: Mapping[str, Partitions]) -> list[tuple[bytes, int, str]]:
    return [
        (topic, index, member)
        for member, parts in assigned.items()
        for topic in parts
        for index in parts[topic]
    ]


@given(groups(), st.sampled_from(sorted(ASSIGNORS)))
def test_each_partition_has_one_owner_that_subscribes_to_it(
    group: tuple[list[Candidate], dict[bytes, int], Assignments], name: str
) -> None:
    members, counts, before = group
    assigned = ASSIGNORS[name](members, counts, before)
    assert set(assigned) == {one.member_id for one in members}
    wanted = {topic for one in members for topic in one.topics}
    every = [(topic, index) for topic in wanted for index in range(counts[topic])]
    assert sorted((topic, index) for topic, index, _ in rows(assigned)) == sorted(every)
    topics_of = {one.member_id: one.topics for one in members}
    assert all(topic in topics_of[member] for topic, _, member in rows(assigned))
    assert all(parts for topics in assigned.values() for parts in topics.values())


@given(groups())
def test_uniform_leaves_nothing_to_be_made_more_even(
    group: tuple[list[Candidate], dict[bytes, int], Assignments],
) -> None:
    members, counts, before = group
    assigned = uniform(members, counts, before)
    loads = Counter({one.member_id: 0 for one in members})
    loads.update(member for _, _, member in rows(assigned))
    for topic, _, owner in rows(assigned):
        for one in members:
            if topic in one.topics:
                assert loads[owner] - loads[one.member_id] <= 1, (topic, owner, one)


@given(groups(same=True))
def test_uniform_moves_only_what_must_move(
    group: tuple[list[Candidate], dict[bytes, int], Assignments],
) -> None:
    members, counts, before = group
    assigned = uniform(members, counts, before)
    base, extra = divmod(sum(counts.values()), len(members))
    kept = had = 0
    most = 0
    sizes = []
    for one in members:
        mine = {
            (t, i)
            for t, parts in before.get(one.member_id, {}).items()
            for i in parts
            if i < counts.get(t, 0)
        }
        now = {(t, i) for t, parts in assigned[one.member_id].items() for i in parts}
        kept += len(mine & now)
        had += len(mine)
        sizes.append(len(mine))
    # As much as any fair division can leave where it is: the members with most keep one more than the others.
    for size in sorted(sizes, reverse=True):
        room = base + (extra > 0 and size > base)
        extra -= extra > 0 and size > base
        most += min(size, room)
    assert kept == most


@given(groups(same=True))
def test_uniform_is_stable(group: tuple[list[Candidate], dict[bytes, int], Assignments]) -> None:
    members, counts, before = group
    once = uniform(members, counts, before)
    assert uniform(members[::-1], counts, once) == once


@given(groups())
def test_uniform_is_stable_with_different_subscriptions(
    group: tuple[list[Candidate], dict[bytes, int], Assignments],
) -> None:
    members, counts, before = group
    once = uniform(members, counts, before)
    assert uniform(members[::-1], counts, once) == once


@given(groups())
def test_range_gives_runs_in_order_of_instances_and_ids(
    group: tuple[list[Candidate], dict[bytes, int], Assignments],
) -> None:
    members, counts, before = group
    assigned = by_range(members, counts, before)
    order = sorted(members, key=lambda one: (one.instance_id is None, one.instance_id or one.member_id))
    for topic in counts:
        subscribers = [one.member_id for one in order if topic in one.topics]
        runs = [sorted(assigned[member].get(topic, ())) for member in subscribers]
        assert [index for run in runs for index in run] == (list(range(counts[topic])) if subscribers else [])
        sizes = [len(run) for run in runs]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_topics_of_as_many_partitions_are_divided_alike_by_range() -> None:
    members = [Candidate(one, None, frozenset(TOPICS[:2])) for one in "abc"]
    assigned = by_range(members, {TOPICS[0]: 7, TOPICS[1]: 7}, {})
    assert all(parts[TOPICS[0]] == parts[TOPICS[1]] for parts in assigned.values())


def test_uniform_spreads_each_topic() -> None:
    members = [Candidate(one, None, frozenset(TOPICS[:2])) for one in "ab"]
    assigned = uniform(members, {TOPICS[0]: 4, TOPICS[1]: 4}, {})
    assert {len(parts[topic]) for parts in assigned.values() for topic in parts} == {2}
