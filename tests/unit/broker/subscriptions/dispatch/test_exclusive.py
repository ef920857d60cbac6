"""Exclusive: one consumer, the order of the log, nothing remembered."""

import pytest

from magnetar.broker.subscriptions.dispatch.errors import ConsumerBusy
from magnetar.broker.subscriptions.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.subscriptions.dispatch.model import Consumer, Deliver
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import (
    consumer,
    delivered,
    rewinds,
    to,
    units,
    whole,
)


def dispatcher(permits: int = 10) -> tuple[ExclusiveDispatcher, Consumer]:
    machine, only = ExclusiveDispatcher(), consumer("only")
    machine.add_consumer(only)
    machine.flow(only, permits)
    return machine, only


def test_a_second_consumer_is_refused_until_the_first_has_left() -> None:
    machine, first = dispatcher()
    with pytest.raises(ConsumerBusy):
        machine.add_consumer(consumer("second"))
    assert machine.consumers == [first]
    assert rewinds(machine.remove_consumer(first)) == 1
    assert machine.add_consumer(consumer("second")) == []


def test_units_go_out_in_order_as_far_as_permits_reach() -> None:
    machine, only = dispatcher(permits=3)
    assert delivered(machine.offer(units(0, 5), 0)) == [("only", 0), ("only", 1), ("only", 2)]
    assert delivered(machine.flow(only, 1)) == [("only", 3)]
    assert delivered(machine.flow(only, 9)) == [("only", 4)]


def test_the_last_entry_may_take_more_permits_than_there_are() -> None:
    machine, only = dispatcher(permits=5)
    assert to(machine.offer(units(0, 3, batch=10), 0), "only") == [0]
    assert only.permits == -5
    assert machine.flow(only, 5) == []
    assert to(machine.flow(only, 1), "only") == [10]


def test_flow_of_nothing_or_from_a_stranger_is_ignored() -> None:
    machine, only = dispatcher(permits=0)
    machine.offer(units(0, 1), 0)
    assert machine.flow(only, 0) == []
    assert machine.flow(only, -5) == []
    assert machine.flow(consumer("stranger"), 5) == []
    assert only.permits == 0


def test_a_full_connection_gets_nothing_until_it_is_writable() -> None:
    machine, only = dispatcher()
    machine.set_writable(only, False)
    assert machine.wanted() == 0
    assert machine.offer(units(0, 2), 0) == []
    assert to(machine.set_writable(only, True), "only") == [0, 1]


def test_wanted_counts_entries_by_the_average_batch() -> None:
    machine, only = dispatcher(permits=1000)
    assert machine.wanted() == 100  # a read's worth
    machine.flow(only, 60 * 50)
    for base in range(0, 60 * 50, 50):
        machine.offer(units(base, 1, batch=50), 0)
    assert only.permits == 1000
    assert 20 <= machine.wanted() <= 21
    only.permits = 3
    assert machine.wanted() == 1  # an entry may overshoot
    only.permits = 0
    assert machine.wanted() == 0


def test_redelivery_of_anything_means_to_read_again() -> None:
    machine, only = dispatcher()
    machine.offer(units(0, 5), 0)
    only.permits = 0
    machine.offer(units(5, 2), 0)
    assert rewinds(machine.redeliver(only, [3])) == 1
    assert machine.flow(only, 10) == []  # what waited was forgotten: it will be read again
    assert to(machine.offer(units(0, 7), 0), "only") == list(range(7))


def test_redelivery_keeps_the_highest_epoch_of_the_consumer() -> None:
    machine, only = dispatcher()
    assert rewinds(machine.redeliver(only, None, epoch=3)) == 1
    machine.redeliver(only, None, epoch=2)
    assert only.epoch == 3


def test_what_waits_is_not_delivered_after_it_was_acknowledged() -> None:
    machine, only = dispatcher(permits=1)
    machine.offer(units(0, 4, batch=10), 0)
    machine.acked([(10, 20), (35, 38)])
    actions = machine.flow(only, 100)
    assert to(actions, "only") == [20, 30]
    (action,) = actions
    assert isinstance(action, Deliver)
    assert action.units[1].offsets == [(30, 35), (38, 40)]
    assert action.units[1].message_count == 7
    assert only.permits == 1 - 10 + 100 - 20


def test_delayed_messages_go_out_at_once() -> None:
    machine, _ = dispatcher()
    assert to(machine.offer(units(0, 1, deliver_at_ms=10**12), 0), "only") == [0]
    assert machine.next_tick_ms is None


def test_nothing_is_kept_without_a_consumer() -> None:
    machine, only = dispatcher()
    machine.remove_consumer(only)
    assert rewinds(machine.offer(units(0, 1), 0)) == 1
    assert machine.wanted() == 0
    assert machine.remove_consumer(only) == []


def test_a_seek_forgets_what_waits() -> None:
    machine, only = dispatcher(permits=1)
    machine.offer(units(0, 3), 0)
    machine.rewind()
    assert to(machine.flow(only, 10), "only") == []
    assert to(machine.offer(units(1, 1), 0), "only") == [1]
    assert machine.acked(whole(0, 1)) == []
