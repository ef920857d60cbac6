"""Which member of a share group fetches of which partition."""

import random

import pytest

from magnetar.broker.groups.consumer.assignors import Assignments, Candidate
from magnetar.broker.groups.share.assignor import simple

A, B = b"a" * 16, b"b" * 16


def members(count: int, *topics: bytes) -> list[Candidate]:
    return [Candidate(f"m{number}", None, frozenset(topics)) for number in range(count)]


def sharers(assigned: Assignments, topic: bytes, count: int) -> list[int]:
    """How many members fetch of each partition."""
    return [sum(one in parts.get(topic, ()) for parts in assigned.values()) for one in range(count)]


@pytest.mark.parametrize(("members_count", "count"), [(1, 4), (3, 4), (4, 4), (5, 4), (9, 4), (3, 1)])
def test_partitions_and_members_are_spread_evenly(members_count: int, count: int) -> None:
    assigned = simple(members(members_count, A), {A: count}, {})
    shared = sharers(assigned, A, count)
    sizes = [len(parts[A]) for parts in assigned.values()]
    assert min(shared) >= 1
    assert min(sizes) >= 1
    assert max(shared) - min(shared) <= 1
    assert max(sizes) - min(sizes) <= 1


def test_members_get_only_what_they_subscribe_to() -> None:
    found = simple([*members(2, A), Candidate("n", None, frozenset((A, B)))], {A: 3, B: 2}, {})
    assert found["n"][B] == {0, 1}
    assert all(B not in found[name] for name in ("m0", "m1"))
    assert sharers(found, A, 3) == [1, 1, 1]


def test_a_topic_without_partitions_is_nobodys() -> None:
    assert simple(members(2, A), {A: 0}, {}) == {"m0": {}, "m1": {}}


@pytest.mark.parametrize("seed", range(50))
def test_every_partition_has_a_member_and_members_keep_what_they_can(seed: int) -> None:
    dice = random.Random(seed)
    before: Assignments = {}
    for _ in range(10):
        count = dice.randint(1, 9)
        present = members(dice.randint(1, 12), A)
        found = simple(present, {A: count}, before)
        shared = sharers(found, A, count)
        assert min(shared) >= 1
        assert max(shared) <= -(-len(present) // count)
        assert all(1 <= len(parts[A]) <= -(-count // len(present)) for parts in found.values())
        assert simple(present, {A: count}, found) == found  # nothing moves without need
        before = found
