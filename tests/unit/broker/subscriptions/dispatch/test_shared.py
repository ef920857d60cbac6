"""Shared: turns, priorities, redelivery order, counts, limits, chunks."""

import pytest

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.subscriptions.dispatch.model import Actions, Consumer, Deliver, Place, Unit
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import (
    consumer,
    delivered,
    rewinds,
    to,
    units,
    whole,
)


def attach(machine: SharedDispatcher, *names: str, permits: int = 0, **fields: object) -> list[Consumer]:
    made = [consumer(name, **fields) for name in names]
    for each in made:
        machine.add_consumer(each)
        machine.flow(each, permits)
    return made


def counts(actions: Actions) -> list[tuple[int, int]]:
    """(base offset, redelivery count)"""
    return [
        (unit.base_offset, unit.redelivery_count)
        for action in actions
        if isinstance(action, Deliver)
        for unit in action.units
    ]


def test_consumers_take_turns_of_twenty_messages() -> None:
    machine = SharedDispatcher()
    attach(machine, "a", "b", permits=100)
    actions = machine.offer(units(0, 50), 0)
    assert [
        (action.consumer.name, len(action.units)) for action in actions if isinstance(action, Deliver)
    ] == [
        ("a", 20),
        ("b", 20),
        ("a", 10),
    ]
    assert to(machine.offer(units(50, 1), 0), "b") == [50]


def test_single_messages_go_round() -> None:
    machine = SharedDispatcher()
    attach(machine, "a", "b", "c", permits=10)
    sequence = [delivered(machine.offer(units(base, 1), 0))[0][0] for base in range(6)]
    assert sequence == ["a", "b", "c", "a", "b", "c"]


def test_a_turn_ends_with_the_entry_that_reaches_twenty() -> None:
    machine = SharedDispatcher()
    attach(machine, "a", "b", permits=1000)
    assert delivered(machine.offer(units(0, 5, batch=15), 0)) == [
        ("a", 0),
        ("a", 15),
        ("b", 30),
        ("b", 45),
        ("a", 60),
    ]


def test_permits_limit_each_consumer_and_a_batch_may_overshoot() -> None:
    machine = SharedDispatcher()
    a, b = attach(machine, "a", "b", permits=5)
    actions = machine.offer(units(0, 4, batch=10), 0)
    assert delivered(actions) == [("a", 0), ("b", 10)]
    assert (a.permits, b.permits) == (-5, -5)
    assert machine.wanted() == 0
    assert machine.flow(b, 5) == []
    assert delivered(machine.flow(b, 1)) == [("b", 20)]
    assert delivered(machine.flow(a, 100)) == [("a", 30)]


def test_lower_priority_levels_come_first_while_they_have_permits() -> None:
    # The example in Pulsar's AbstractDispatcherMultipleConsumers.getNextConsumer: C1, C2, C3, C1, C4, C5, C4.
    machine = SharedDispatcher(turn_messages_max=1)
    for name, level, permits in [("C4", 1, 2), ("C5", 1, 1), ("C1", 0, 2), ("C2", 0, 1), ("C3", 0, 1)]:
        (joined,) = attach(machine, name, priority_level=level)
        machine.flow(joined, permits)
    names = [name for name, _ in delivered(machine.offer(units(0, 9), 0))]
    assert names == ["C1", "C2", "C3", "C1", "C4", "C5", "C4"]


def test_what_comes_back_goes_out_first_in_the_order_of_the_log() -> None:
    machine = SharedDispatcher()
    a, b = attach(machine, "a", "b")
    machine.flow(a, 6)
    machine.offer(units(0, 10), 0)
    assert machine.redeliver(a, [4, 1, 2, 1]) == []  # one named twice
    assert to(machine.flow(b, 5), "b") == [1, 2, 4, 6, 7]
    assert b.permits == 0


def test_each_redelivery_counts_one() -> None:
    machine = SharedDispatcher()
    (a,) = attach(machine, "a", permits=100)
    assert counts(machine.offer(units(0, 3), 0)) == [(0, 0), (1, 0), (2, 0)]
    assert counts(machine.redeliver(a, [1])) == [(1, 1)]
    assert counts(machine.redeliver(a)) == [(0, 1), (1, 2), (2, 1)]


def test_a_consumer_gets_back_only_what_it_holds() -> None:
    machine = SharedDispatcher(turn_messages_max=1)
    a, b = attach(machine, "a", "b", permits=10)
    machine.offer(units(0, 4), 0)
    assert machine.redeliver(a, [1, 3, 99]) == []  # b's, b's, held by no consumer
    assert machine.redeliver(consumer("stranger")) == []
    machine.acked(whole(0))
    assert machine.redeliver(a, [0]) == []
    assert counts(machine.redeliver(b, [3])) == [(3, 1)]


def test_what_a_leaving_consumer_held_goes_to_the_others_uncounted() -> None:
    machine = SharedDispatcher(turn_messages_max=1)
    a, _ = attach(machine, "a", "b", permits=10)
    machine.offer(units(0, 4), 0)
    machine.acked(whole(2))
    actions = machine.remove_consumer(a)
    assert delivered(actions) == [("b", 0)]
    assert counts(actions) == [(0, 0)]


def test_the_last_one_to_leave_ends_all_memory() -> None:
    machine = SharedDispatcher()
    (a,) = attach(machine, "a", permits=10)
    machine.offer(units(0, 3), 0)
    machine.redeliver(a)
    assert rewinds(machine.remove_consumer(a)) == 1
    assert machine.remove_consumer(a) == []
    assert machine.unacked_messages == 0
    assert rewinds(machine.offer(units(3, 1), 0)) == 1  # a read that was under way
    attach(machine, "b", permits=10)
    assert counts(machine.offer(units(0, 3), 0)) == [(0, 0), (1, 0), (2, 0)]


def test_any_consumer_may_acknowledge_for_another() -> None:
    machine = SharedDispatcher(turn_messages_max=1)
    a, b = attach(machine, "a", "b", permits=10)
    machine.offer(units(0, 2), 0)
    machine.acked(whole(0, 1, 77))
    assert (a.unacked_messages, b.unacked_messages, machine.unacked_messages) == (0, 0, 0)


def test_acknowledged_units_are_never_delivered_again() -> None:
    machine = SharedDispatcher()
    (a,) = attach(machine, "a")
    machine.flow(a, 2)
    machine.offer(units(0, 5), 0)
    machine.redeliver(a, [0, 1])
    machine.acked([(1, 4)])  # in the replay queue and never delivered
    assert to(machine.flow(a, 10), "a") == [0, 4]


def test_part_of_a_batch_stays_unacknowledged() -> None:
    machine = SharedDispatcher()
    (a,) = attach(machine, "a", permits=100)
    machine.offer(units(0, 2, batch=10), 0)
    machine.acked([(3, 5), (9, 12)])
    machine.acked([(3, 5)])  # twice changes nothing
    assert a.unacked_messages == 15
    actions = machine.redeliver(a)
    assert [unit.offsets for action in actions if isinstance(action, Deliver) for unit in action.units] == [
        [(0, 3), (5, 9)],
        [(12, 20)],
    ]
    assert a.permits == 100 - 40  # the client gives permits back for what the ack set hides, too
    machine.acked([(0, 9), (12, 20)])
    assert (a.unacked_messages, len(a.held)) == (0, 0)


def test_a_batch_of_which_a_part_is_left_costs_what_the_client_gives_back() -> None:
    machine = SharedDispatcher()
    (a,) = attach(machine, "a", permits=100)
    machine.offer([Unit(0, 0, 10, offsets=((2, 4),))], 0)
    assert (a.permits, a.unacked_messages) == (90, 2)


def test_a_consumer_with_too_many_unacknowledged_messages_is_passed_over() -> None:
    machine = SharedDispatcher(turn_messages_max=1)
    a, b = attach(machine, "a", "b", permits=100, unacked_messages_max=4)
    machine.offer(units(0, 9), 0)
    assert a.blocked
    assert b.blocked
    assert machine.wanted() == 0
    assert machine.acked(whole(0)) == []  # three of four: more than half
    assert delivered(machine.acked(whole(2))) == [("a", 8)]
    assert machine.wanted() > 0


def test_the_subscription_limit_stops_new_messages_but_not_replays() -> None:
    machine = SharedDispatcher(unacked_messages_max=4)
    (a,) = attach(machine, "a", permits=100)
    assert to(machine.offer(units(0, 6), 0), "a") == [0, 1, 2, 3]
    assert machine.blocked
    assert machine.wanted() == 0
    assert to(machine.redeliver(a, [2]), "a") == [2]
    assert machine.acked(whole(0)) == []
    assert to(machine.acked(whole(1)), "a") == [4, 5]


def test_a_limit_of_zero_is_none() -> None:
    machine = SharedDispatcher(unacked_messages_max=0)
    (a,) = attach(machine, "a", permits=10**6, unacked_messages_max=0)
    machine.offer(units(0, 1000, batch=300), 0)
    assert a.unacked_messages == 300_000


def test_limits_that_change_hold_at_once() -> None:
    machine = SharedDispatcher(unacked_messages_max=4)
    (a,) = attach(machine, "a", permits=100, unacked_messages_max=50)
    assert to(machine.offer(units(0, 20), 0), "a") == [0, 1, 2, 3]
    assert to(machine.limit_unacked(UnackedLimits(consumer=6, subscription=0)), "a") == [4, 5]
    assert (a.blocked, machine.blocked) == (True, False)
    assert machine.limit_unacked(UnackedLimits(consumer=6, subscription=3)) == []
    assert (a.blocked, machine.blocked) == (True, True)
    assert machine.limit_unacked(UnackedLimits(consumer=7, subscription=3)) == []
    assert to(machine.limit_unacked(UnackedLimits(consumer=7, subscription=0)), "a") == [6]
    assert len(to(machine.limit_unacked(UnackedLimits(consumer=0, subscription=0)), "a")) == 13


def test_limits_that_are_set_once_more_let_nobody_go_on_early() -> None:
    limits = UnackedLimits(consumer=4, subscription=0)
    machine = SharedDispatcher(unacked_messages_max=limits.subscription)
    (a,) = attach(machine, "a", permits=100, unacked_messages_max=limits.consumer)
    machine.offer(units(0, 9), 0)
    assert machine.acked(whole(0)) == []
    assert machine.limit_unacked(limits) == []
    assert a.blocked


def test_delayed_units_wait_for_their_time_and_hold_nothing_else_up() -> None:
    machine = SharedDispatcher()
    attach(machine, "a", permits=100)
    late = units(0, 2, deliver_at_ms=5_200)
    assert to(machine.offer([*late, *units(2, 1)], 5_000), "a") == [2]
    assert machine.unit_count == 1
    assert machine.next_tick_ms == 6_000
    assert machine.wanted() > 0
    assert machine.tick(5_100) == []
    assert machine.wanted_due() == 0
    assert machine.tick(6_000) == []
    assert machine.due(machine.wanted_due()) == [0, 1]
    assert to(machine.offer_due(units(0, 2), whole(0, 1), 6_000), "a") == [0, 1]
    assert machine.due(100) == []
    assert machine.next_tick_ms is None


def test_a_delayed_unit_may_be_acknowledged_before_its_time() -> None:
    machine = SharedDispatcher()
    attach(machine, "a", permits=100)
    machine.offer(units(0, 4, deliver_at_ms=5_000), 0)
    machine.acked(whole(1))
    assert machine.delayed_count == 3
    machine.tick(5_000)
    assert machine.due(100) == [0, 2, 3]
    machine.acked(whole(2))
    assert machine.due(100) == [0, 3]
    machine.acked(whole(0, 3))
    assert (machine.delayed_count, machine.delayed_bytes, machine.due(100)) == (0, 0, [])


def test_what_is_due_goes_out_although_too_much_is_unacknowledged() -> None:
    machine = SharedDispatcher(unacked_messages_max=2)
    (a,) = attach(machine, "a")
    machine.offer(units(0, 1, deliver_at_ms=5_000), 0)
    machine.flow(a, 2)
    machine.offer(units(1, 2), 0)
    machine.flow(a, 5)
    machine.tick(5_000)
    assert (machine.wanted(), machine.wanted_due()) == (0, 5)
    assert to(machine.offer_due(units(0, 1), whole(0), 5_000), "a") == [0]


def test_a_time_that_has_passed_delays_nothing() -> None:
    machine = SharedDispatcher()
    attach(machine, "a", permits=100)
    assert to(machine.offer(units(0, 1, deliver_at_ms=5_000), 5_000), "a") == [0]


def test_chunks_of_one_message_stay_with_one_consumer() -> None:
    machine = SharedDispatcher(turn_messages_max=1)
    attach(machine, "a", "b", permits=10)
    machine.offer(units(0, 1, chunk_id="x"), 0)
    assert to(machine.offer(units(1, 3, chunk_id="x"), 0), "a") == [1, 2, 3]


def test_chunks_wait_for_their_consumer_and_others_pass_them() -> None:
    machine = SharedDispatcher()
    a, b = attach(machine, "a", "b")
    machine.flow(a, 1)
    machine.offer(units(0, 1, chunk_id="x"), 0)
    machine.flow(b, 10)
    assert delivered(machine.offer([*units(1, 2, chunk_id="x"), *units(3, 1)], 0)) == [("b", 3)]
    assert machine.waiting_count == 2
    assert to(machine.flow(a, 1), "a") == [1]
    assert delivered(machine.remove_consumer(a)) == [("b", 0), ("b", 1), ("b", 2)]


def test_a_chunk_that_waits_for_its_consumer_may_be_acknowledged() -> None:
    machine = SharedDispatcher()
    a, b = attach(machine, "a", "b")
    machine.flow(a, 1)
    machine.offer(units(0, 1, chunk_id="x"), 0)
    machine.flow(b, 10)
    machine.offer(units(1, 2, chunk_id="x"), 0)
    machine.acked(whole(0, 1))
    assert to(machine.flow(a, 5), "a") == [2]
    machine.acked(whole(2))
    # No consumer holds a chunk of it any more: a message of the same uuid starts anew.
    assert len(delivered(machine.offer(units(9, 1, chunk_id="x"), 0))) == 1


def test_too_many_waiting_chunks_stop_the_reading() -> None:
    machine = SharedDispatcher()
    a, b = attach(machine, "a", "b")
    machine.flow(a, 1)
    machine.offer(units(0, 1, chunk_id="x"), 0)
    machine.flow(b, 10_000)
    assert machine.wanted() == 100
    machine.offer(units(1, 4_000, chunk_id="x"), 0)
    assert machine.wanted() == 0


def test_a_full_connection_is_passed_over() -> None:
    machine = SharedDispatcher()
    a, _ = attach(machine, "a", "b", permits=10)
    machine.set_writable(a, False)
    assert delivered(machine.offer(units(0, 12), 0)) == [("b", base) for base in range(10)]
    assert to(machine.set_writable(a, True), "a") == [10, 11]


def test_a_seek_forgets_and_unblocks() -> None:
    machine = SharedDispatcher(unacked_messages_max=4)
    (a,) = attach(machine, "a", permits=100, unacked_messages_max=2)
    taken = units(5, 6)
    machine.offer(taken, 0)
    assert a.blocked
    machine.rewind()
    assert (a.unacked_messages, machine.unacked_messages, machine.waiting_count) == (0, 0, 0)
    assert {unit.place for unit in taken} == {Place.DONE}
    assert to(machine.offer(units(0, 2), 0), "a") == [0, 1]


def test_offers_must_follow_the_log() -> None:
    machine = SharedDispatcher()
    attach(machine, "a")
    machine.offer(units(5, 1), 0)
    with pytest.raises(AssertionError, match="out of order"):
        machine.offer([Unit(4, 4, 5)], 0)
