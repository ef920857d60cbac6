"""The containers of the dispatchers: what they find, what they forget, and that neither grows with the past."""

import pytest

from magnetar.broker.subscriptions.dispatch.index import UnitIndex
from magnetar.broker.subscriptions.dispatch.model import Place, Unit
from magnetar.broker.subscriptions.dispatch.redelivery import WaitingUnits
from magnetar.broker.subscriptions.dispatch.ring import ConsumerRing
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import consumer, units


def indexed(count: int, batch: int = 10) -> tuple[UnitIndex, list[Unit]]:
    index, made = UnitIndex(), units(0, count, batch=batch)
    for unit in made:
        index.add(unit)
    return index, made


def test_an_exact_range_finds_its_only_unit() -> None:
    index, made = indexed(3)
    assert index.exactly(10, 20) is made[1]
    assert index.exactly(10, 19) is None
    assert index.exactly(11, 20) is None
    assert index.exactly(30, 40) is None


@pytest.mark.parametrize(
    ("start", "stop", "found"),
    [(0, 1, [0]), (9, 10, [0]), (9, 11, [0, 1]), (10, 20, [1]), (19, 40, [1, 2]), (30, 99, []), (5, 5, [0])],
)
def test_any_range_finds_the_units_that_it_touches(start: int, stop: int, found: list[int]) -> None:
    index, made = indexed(3)
    assert index.overlapping(start, stop) == [made[number] for number in found]


def test_what_was_removed_is_not_found() -> None:
    index, made = indexed(5)
    index.remove(made[1])
    index.remove(made[4])
    assert index.overlapping(0, 100) == [made[0], made[2], made[3]]
    assert index.overlapping(15, 16) == []
    assert len(index) == 3


@pytest.mark.parametrize("gone", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (2, 1, 0)])
def test_units_of_one_entry_are_removed_one_by_one(gone: tuple[int, ...]) -> None:
    index = UnitIndex()
    family = [Unit(None, 0, 9, offsets=((low, low + 3),)) for low in (0, 3, 6)]
    for unit in family:
        index.add(unit)
    assert index.exactly(0, 9) is None
    for number in gone:
        index.remove(family[number])
    left = [unit for number, unit in enumerate(family) if number not in gone]
    assert sorted(unit.order for unit in index.at(0)) == [unit.order for unit in left]
    assert sorted(unit.order for unit in index.overlapping(4, 5)) == [unit.order for unit in left]


def test_the_index_does_not_grow_with_the_past() -> None:
    index = UnitIndex()
    kept = Unit(None, 0, 10)
    index.add(kept)
    for unit in units(10, 10_000, batch=10):
        index.add(unit)
        index.remove(unit)
    last = Unit(None, 200_000, 200_010)
    index.add(last)
    assert len(index._bases) < 200
    assert index.overlapping(0, 300_000) == [kept, last]


def numbered(count: int) -> list[Unit]:
    made = units(0, count)
    for number, unit in enumerate(made):
        unit.order = number
    return made


def test_waiting_units_come_out_in_the_order_of_the_log_without_the_acknowledged() -> None:
    waiting, made = WaitingUnits(), numbered(300)
    for unit in reversed(made):
        waiting.put(unit)
    for unit in made[::3] + made[1::3]:
        unit.place = Place.DONE
        waiting.forget_one()
    assert len(waiting) == 100
    assert len(waiting._heap) <= 2 * 100 + 65
    assert [waiting.take() for _ in range(100)] == made[2::3]
    assert (waiting.take(), waiting.first(), len(waiting)) == (None, None, 0)


def test_a_ring_counts_permits_as_far_as_it_needs_to_and_drops_the_unavailable() -> None:
    ring, many = ConsumerRing(), [consumer(str(number), priority_level=number % 2) for number in range(6)]
    for number, one in enumerate(many):
        one.permits = number + 1
        ring.join(one)
        ring.join(one)  # nothing happens twice
    assert ring.permits(enough=10**9) == 21
    assert ring.permits(enough=4) == 4
    many[0].permits = 0
    many[1].writable = False
    assert ring.permits(enough=10**9) == 18
    assert (many[0].in_turn, many[1].in_turn, many[2].in_turn) == (False, False, True)
    many[0].permits = 1
    ring.join(many[0])
    assert [next_name(ring) for _ in range(4)] == ["2", "4", "0", "2"]
    ring.leave(many[2])
    ring.leave(many[2])
    assert [next_name(ring) for _ in range(3)] == ["4", "0", "4"]


def next_name(ring: ConsumerRing) -> str | None:
    one = ring.next()
    return None if one is None else one.name


def test_an_empty_ring_has_no_next() -> None:
    ring, one = ConsumerRing(), consumer()
    assert ring.next() is None
    one.permits = 1
    ring.join(one)
    one.permits = 0
    assert ring.next() is None
    assert ring.permits(enough=1) == 0
