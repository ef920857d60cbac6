"""Failover: which consumer is active, and what happens when that changes."""

from bisect import bisect_left

import pytest

from magnetar.broker.subscriptions.dispatch.failover import FailoverDispatcher
from magnetar.broker.subscriptions.dispatch.hashing import positive_hash
from magnetar.broker.subscriptions.dispatch.model import Consumer
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import changes, consumer, rewinds, to, units

TOPIC = "persistent://public/default/t"


def attach(machine: FailoverDispatcher, *names: str, level: int = 0) -> list[Consumer]:
    made = [consumer(name, priority_level=level) for name in names]
    for each in made:
        machine.add_consumer(each)
    return made


def test_the_first_consumer_is_active_and_told_so() -> None:
    machine = FailoverDispatcher(TOPIC, 0)
    actions = machine.add_consumer(consumer("a"))
    assert changes(actions) == [("a", True)]
    assert rewinds(actions) == 0  # no consumer has read anything


def test_another_consumer_waits_and_is_told_so() -> None:
    machine = FailoverDispatcher(TOPIC, 0)
    a, _ = attach(machine, "a", "b")
    actions = machine.add_consumer(consumer("c"))
    assert (changes(actions), rewinds(actions)) == ([("c", False)], 0)
    assert machine.active is a


def test_a_change_of_the_active_consumer_rewinds_and_is_told_to_all() -> None:
    machine = FailoverDispatcher(TOPIC, 0)
    b, c = attach(machine, "b", "c")
    machine.flow(b, 2)
    assert to(machine.offer(units(0, 4), 0), "b") == [0, 1]
    actions = machine.add_consumer(consumer("a"))
    assert rewinds(actions) == 1
    assert changes(actions) == [("a", True), ("b", False), ("c", False)]
    assert machine.flow(b, 5) == []
    assert machine.flow(c, 5) == []
    assert machine.active is not None
    assert to(machine.flow(machine.active, 5), "a") == []  # what waited for b will be read again
    assert to(machine.offer(units(0, 3), 0), "a") == [0, 1, 2]


def test_the_next_by_name_takes_over() -> None:
    machine = FailoverDispatcher(TOPIC, 0)
    a, b, _c = attach(machine, "a", "b", "c")
    machine.flow(b, 7)  # permits are kept while it waits
    actions = machine.remove_consumer(a)
    assert (rewinds(actions), changes(actions)) == (1, [("b", True), ("c", False)])
    assert machine.wanted() == 7
    assert machine.remove_consumer(_c) == []
    assert rewinds(machine.remove_consumer(b)) == 1
    assert machine.active is None
    assert machine.remove_consumer(b) == []


@pytest.mark.parametrize("index", range(7))
def test_partitions_spread_over_the_consumers_of_the_highest_priority(index: int) -> None:
    machine = FailoverDispatcher(TOPIC, index)
    attach(machine, "d", "c", level=1)
    attach(machine, "z", "a", "m")
    assert machine.active is not None
    assert machine.active.name == ["a", "m", "z"][index % 3]


def test_a_lower_level_takes_over_when_the_higher_is_gone() -> None:
    machine = FailoverDispatcher(TOPIC, 1)
    high, low = consumer("z", priority_level=0), consumer("a", priority_level=1)
    machine.add_consumer(low)
    assert changes(machine.add_consumer(high)) == [("z", True), ("a", False)]
    assert changes(machine.remove_consumer(high)) == [("a", True)]


@pytest.mark.parametrize("topic", [f"{TOPIC}{number}" for number in (*range(20), 474)])
def test_a_topic_without_partitions_takes_the_next_point_of_a_ring(topic: str) -> None:
    machine = FailoverDispatcher(topic, None)
    attach(machine, "a", "b", "c")
    attach(machine, "x", level=3)
    ring = {positive_hash(f"{name}{n}".encode()): name for name in "abc" for n in range(100)}
    points = sorted(ring)
    place = bisect_left(points, positive_hash(topic.encode()))
    assert machine.active is not None
    assert machine.active.name == ring[points[place % len(points)]]


def test_only_the_active_one_can_ask_for_redelivery() -> None:
    machine = FailoverDispatcher(TOPIC, 0)
    a, b = attach(machine, "a", "b")
    assert machine.redeliver(b, None, epoch=4) == []
    assert b.epoch == 4
    assert rewinds(machine.redeliver(a)) == 1
    assert machine.redeliver(consumer("stranger")) == []


# --- the delay of who takes over -------------------------------------------------------------------------------------


def delayed(now_ms: int = 1000) -> FailoverDispatcher:
    return FailoverDispatcher(TOPIC, 0, delay_ms=500, now_ms=lambda: now_ms)


def test_the_first_consumer_does_not_wait() -> None:
    machine = delayed()
    assert changes(machine.add_consumer(consumer("b"))) == [("b", True)]
    assert machine.next_tick_ms is None


def test_who_takes_over_gets_nothing_and_nobody_is_told_before_the_delay_is_over() -> None:
    machine = delayed()
    (b,) = attach(machine, "b")
    machine.flow(b, 5)
    assert to(machine.offer(units(0, 2), 1000), "b") == [0, 1]
    a = consumer("a")
    actions = machine.add_consumer(a)
    assert (rewinds(actions), changes(actions)) == (1, []), "what b has not got is taken back"
    assert machine.active is a
    assert machine.flow(a, 5) == []
    assert (machine.wanted(), machine.next_tick_ms) == (0, 1500)
    assert machine.offer(units(0, 2), 1400) == [], "it was being read for b"
    assert machine.tick(1499) == []
    actions = machine.tick(1500)
    assert (rewinds(actions), changes(actions)) == (1, [("a", True), ("b", False)])
    assert (machine.wanted(), machine.next_tick_ms) == (5, None)
    assert to(machine.offer(units(2, 2), 1500), "a") == [2, 3]
    assert machine.tick(2000) == []


def test_the_next_one_waits_too_when_the_active_one_leaves() -> None:
    machine = delayed()
    a, b = attach(machine, "a", "b")
    machine.flow(b, 5)
    assert changes(machine.remove_consumer(a)) == []
    assert machine.wanted() == 0
    assert changes(machine.tick(1500)) == [("b", True)]


def test_more_changes_do_not_make_the_delay_longer() -> None:
    times = iter((1000, 1400))
    machine = FailoverDispatcher(TOPIC, 0, delay_ms=500, now_ms=lambda: next(times))
    attach(machine, "c")
    machine.add_consumer(consumer("b"))
    machine.add_consumer(consumer("a"))
    assert machine.next_tick_ms == 1500
    assert changes(machine.tick(1500)) == [("a", True), ("b", False), ("c", False)]


def test_clock_that_is_set_back_makes_the_delay_no_longer() -> None:
    machine = delayed()
    attach(machine, "b")
    machine.add_consumer(consumer("a"))
    assert changes(machine.tick(1500 - 3_600_000)) == [("a", True), ("b", False)]
    assert machine.next_tick_ms is None


def test_who_comes_after_all_have_left_does_not_wait() -> None:
    machine = delayed()
    a, b = attach(machine, "a", "b")
    machine.remove_consumer(a)
    machine.remove_consumer(b)
    assert machine.next_tick_ms is None
    (c,) = attach(machine, "c")
    machine.flow(c, 5)
    assert machine.wanted() == 5
