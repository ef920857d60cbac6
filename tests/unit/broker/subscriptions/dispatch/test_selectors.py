"""Slots to consumers: the ring moves little and shares evenly, declared ranges do not overlap."""

from collections import Counter

import pytest

from magnetar.broker.subscriptions.dispatch.errors import ConsumerAssignError
from magnetar.broker.subscriptions.dispatch.hashing import positive_hash
from magnetar.broker.subscriptions.dispatch.model import Consumer
from magnetar.broker.subscriptions.dispatch.selectors import DeclaredRanges, HashRing
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import consumer

SLOTS = range(1, 65_536)


def owners(ring: HashRing) -> list[Consumer | None]:
    return [ring.select(slot) for slot in SLOTS]


def test_an_empty_ring_has_no_owner() -> None:
    ring = HashRing()
    assert ring.select(1) is None
    only = consumer()
    ring.add(only)
    assert set(owners(ring)) == {only}
    ring.remove(only)
    assert ring.select(1) is None


def test_a_slot_belongs_to_the_first_point_at_or_above_it() -> None:
    ring, a, b = HashRing(), consumer("a"), consumer("b")
    ring.add(a)
    ring.add(b)
    points = {positive_hash(f"{one.name}\0{n}".encode()) % 65_536: one for one in (b, a) for n in range(100)}
    for point, owner in points.items():
        assert ring.select(point) is owner
        assert ring.select(point + 1) is points[min((p for p in points if p > point), default=min(points))]


def test_consumers_share_about_evenly() -> None:
    ring, ten = HashRing(), [consumer(f"c{number}") for number in range(10)]
    for one in ten:
        ring.add(one)
    shares = Counter(owners(ring))
    assert len(shares) == 10
    assert max(shares.values()) < 2 * 6_553


def test_consumers_of_one_name_share_too() -> None:
    ring, twins = HashRing(), [consumer("same"), consumer("same")]
    for one in twins:
        ring.add(one)
    shares = Counter(owners(ring))
    assert min(shares[one] for one in twins) > 65_536 * 0.3


def test_only_slots_of_consumers_that_come_and_go_move() -> None:
    ring, many = HashRing(), [consumer(f"c{number}") for number in range(5)]
    for one in many:
        ring.add(one)
    before = owners(ring)
    joined = consumer("new")
    ring.add(joined)
    during = owners(ring)
    assert all(now is joined or now is then for now, then in zip(during, before, strict=True))
    ring.remove(joined)
    assert owners(ring) == before
    ring.remove(many[2])
    assert all(now is then or then is many[2] for now, then in zip(owners(ring), before, strict=True))


def test_a_point_that_two_share_goes_to_the_other_when_one_leaves() -> None:
    ring, many = HashRing(), [consumer(f"c{number}") for number in range(12)]
    for one in many:
        ring.add(one)
    claims = Counter(
        point
        for one in many
        for point in {positive_hash(f"{one.name}\0{n}".encode()) % 65_536 for n in range(100)}
    )
    shared = [point for point, count in claims.items() if count > 1]
    assert shared
    for point in shared:
        first = ring.select(point)
        assert first is not None
        ring.remove(first)
        second = ring.select(point)
        assert second is not None
        assert first.name < second.name
        ring.add(first)
        assert ring.select(point) is first


def test_the_order_of_joining_does_not_matter() -> None:
    names = [f"c{number}" for number in range(6)]
    one, other = HashRing(), HashRing()
    for name in names:
        one.add(consumer(name))
    for name in reversed(names):
        other.add(consumer(name))
    assert [owner and owner.name for owner in owners(one)] == [
        owner and owner.name for owner in owners(other)
    ]


def ranged(name: str, *ranges: tuple[int, int]) -> Consumer:
    return consumer(name, hash_ranges=ranges)


def test_declared_ranges_include_both_ends_and_gaps_have_no_owner() -> None:
    declared, a, b = DeclaredRanges(), ranged("a", (0, 9), (20, 29)), ranged("b", (10, 10), (65_535, 65_535))
    declared.add(a)
    declared.add(b)
    assert [declared.select(slot) for slot in (0, 9, 10, 11, 19, 20, 29, 30, 65_534, 65_535)] == [
        a, a, b, None, None, a, a, None, None, b,
    ]  # fmt: skip
    declared.remove(a)
    assert declared.select(5) is None
    assert declared.select(10) is b


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        ((5, 4),),
        ((-1, 4),),
        ((0, 65_536),),
        ((0, 10), (10, 20)),
        ((100, 100),),
        ((99, 101),),
        ((0, 100),),
        ((150, 1000),),
        ((0, 1000),),
        ((0, 50), (120, 130)),
    ],
)
def test_ranges_that_are_no_good_are_refused_and_change_nothing(ranges: tuple[tuple[int, int], ...]) -> None:
    declared, first = DeclaredRanges(), ranged("first", (100, 199))
    declared.add(first)
    with pytest.raises(ConsumerAssignError):
        declared.add(ranged("second", *ranges))
    assert [declared.select(slot) for slot in (0, 99, 100, 199, 200)] == [None, None, first, first, None]
