"""Key_Shared: a key is unacknowledged at one consumer at a time, in order (PIP-379)."""

import pytest

from magnetar.base.settings_subscriptions import UnackedLimits
from magnetar.broker.subscriptions.dispatch.errors import ConsumerAssignError
from magnetar.broker.subscriptions.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.subscriptions.dispatch.model import Consumer, Unit
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import (
    consumer,
    delivered,
    rewinds,
    to,
    units,
    whole,
)


def attach(machine: KeySharedDispatcher, *names: str, permits: int = 0, **fields: object) -> list[Consumer]:
    made = [consumer(name, **fields) for name in names]
    for each in made:
        machine.add_consumer(each)
        machine.flow(each, permits)
    return made


def slot_for(machine: KeySharedDispatcher, owner: Consumer, *, but: tuple[int, ...] = ()) -> int:
    return next(slot for slot in range(1, 65_536) if machine.owner(slot) is owner and slot not in but)


def moving_slot(machine: KeySharedDispatcher, owner: Consumer, joining: str) -> int:
    """A slot of `owner` that a consumer of this name would take over."""
    trial = consumer(joining)
    before = [machine.owner(slot) for slot in range(65_536)]
    machine.add_consumer(trial)
    found = next(slot for slot in range(1, 65_536) if before[slot] is owner and machine.owner(slot) is trial)
    machine.remove_consumer(trial)
    return found


def test_a_key_goes_to_the_owner_of_its_slot() -> None:
    machine = KeySharedDispatcher()
    a, b = attach(machine, "a", "b", permits=10)
    first, second = slot_for(machine, a), slot_for(machine, b)
    offered = [*units(0, 2, slot=first), *units(2, 1, slot=second), *units(3, 1, slot=first)]
    assert sorted(delivered(machine.offer(offered, 0))) == [("a", 0), ("a", 1), ("a", 3), ("b", 2)]


def test_a_slow_consumer_holds_up_only_its_own_keys() -> None:
    machine = KeySharedDispatcher()
    a, b = attach(machine, "a", "b", permits=1)
    first, second = slot_for(machine, a), slot_for(machine, b)
    machine.flow(b, 10)
    offered = [*units(0, 3, slot=first), *units(3, 2, slot=second)]
    assert sorted(delivered(machine.offer(offered, 0))) == [("a", 0), ("b", 3), ("b", 4)]
    assert machine.wanted() == 9  # for b there may be more
    assert delivered(machine.flow(a, 10)) == [("a", 1), ("a", 2)]


def test_several_keys_of_one_consumer_go_out_in_the_order_of_the_log() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a")
    machine.offer([Unit(base, base, base + 1, slot=1 + base % 3) for base in range(9)], 0)
    assert to(machine.flow(a, 5), "a") == [0, 1, 2, 3, 4]
    assert to(machine.flow(a, 5), "a") == [5, 6, 7, 8]


def test_a_moved_key_waits_until_its_former_owner_has_acknowledged() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a", permits=10)
    slot = moving_slot(machine, a, "b")
    assert to(machine.offer(units(0, 2, slot=slot), 0), "a") == [0, 1]
    (b,) = attach(machine, "b", permits=10)
    still_a = slot_for(machine, a)
    offered = [*units(2, 2, slot=slot), *units(4, 1, slot=still_a)]
    assert delivered(machine.offer(offered, 0)) == [("a", 4)]
    assert machine.acked(whole(0)) == []  # one of two
    assert delivered(machine.acked(whole(1))) == [("b", 2), ("b", 3)]
    assert b.unacked_messages == 2


def test_a_moved_key_is_free_when_its_former_owner_gives_it_back() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a", permits=10)
    slot = moving_slot(machine, a, "b")
    machine.offer(units(0, 2, slot=slot), 0)
    attach(machine, "b", permits=10)
    machine.offer(units(2, 1, slot=slot), 0)
    assert machine.redeliver(a, [1]) == []  # a holds 0 still
    assert delivered(machine.redeliver(a, [0])) == [("b", 0), ("b", 1), ("b", 2)]


def test_a_moved_key_is_free_when_its_former_owner_leaves() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a", permits=10)
    slot = moving_slot(machine, a, "b")
    machine.offer(units(0, 2, slot=slot), 0)
    attach(machine, "b", permits=10)
    machine.offer(units(2, 1, slot=slot), 0)
    assert delivered(machine.remove_consumer(a)) == [("b", 0), ("b", 1), ("b", 2)]


def test_a_key_that_moves_back_while_it_drains_goes_on_at_once() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a", permits=10)
    slot = moving_slot(machine, a, "b")
    machine.offer(units(0, 1, slot=slot), 0)
    (b,) = attach(machine, "b", permits=10)
    assert machine.offer(units(1, 1, slot=slot), 0) == []
    assert delivered(machine.remove_consumer(b)) == [("a", 1)]


def test_a_key_may_move_twice_while_it_drains() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a", permits=10)
    slot = moving_slot(machine, a, "b")
    machine.offer(units(0, 1, slot=slot), 0)
    (b,) = attach(machine, "b", permits=10)
    machine.offer(units(1, 1, slot=slot), 0)
    for number in range(100):
        attach(machine, f"c{number}", permits=10)
        if machine.owner(slot) is not b:
            break
    else:
        pytest.fail("no name takes the slot over")
    owner = machine.owner(slot)
    assert owner is not None
    assert delivered(machine.acked(whole(0))) == [(owner.name, 1)]


def test_a_redelivered_message_comes_before_later_ones_of_its_key() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a")
    machine.flow(a, 2)
    machine.offer(units(0, 4, slot=5), 0)
    machine.redeliver(a, [1])
    assert to(machine.flow(a, 3), "a") == [1, 2, 3]


def test_out_of_order_delivery_does_not_drain() -> None:
    machine = KeySharedDispatcher(allow_out_of_order=True)
    (a,) = attach(machine, "a", permits=10)
    slot = moving_slot(machine, a, "b")
    machine.offer(units(0, 1, slot=slot), 0)
    attach(machine, "b", permits=10)
    assert delivered(machine.offer(units(1, 1, slot=slot), 0)) == [("b", 1)]
    machine.acked(whole(0, 1))
    assert machine.unacked_messages == 0


def test_sticky_consumers_get_their_ranges_and_gaps_wait() -> None:
    machine = KeySharedDispatcher(sticky=True)
    attach(machine, "a", permits=10, hash_ranges=((0, 9),))
    with pytest.raises(ConsumerAssignError):
        machine.add_consumer(consumer("b", hash_ranges=((9, 20),)))
    assert [one.name for one in machine.consumers] == ["a"]
    attach(machine, "b", permits=10, hash_ranges=((10, 20),))
    offered = [Unit(base, base, base + 1, slot=slot) for base, slot in enumerate((5, 15, 30))]
    assert sorted(delivered(machine.offer(offered, 0))) == [("a", 0), ("b", 1)]
    assert delivered(machine.add_consumer(consumer("c", hash_ranges=((30, 30),)))) == []
    late = machine.consumers[-1]
    assert delivered(machine.flow(late, 1)) == [("c", 2)]


def test_units_of_one_entry_are_held_and_acknowledged_apart() -> None:
    machine = KeySharedDispatcher()
    a, b = attach(machine, "a", "b", permits=100)
    one = Unit("entry", 0, 10, offsets=((0, 3), (5, 6)), permits=10, slot=slot_for(machine, a))
    other = Unit("entry", 0, 10, offsets=((3, 5), (6, 10)), permits=10, slot=slot_for(machine, b))
    assert len(delivered(machine.offer([one, other], 0))) == 2
    assert (a.unacked_messages, b.unacked_messages) == (4, 6)
    assert (a.permits, b.permits) == (90, 90)  # each client gives back what is hidden from it
    machine.acked([(2, 7)])
    assert (a.unacked_messages, b.unacked_messages) == (2, 3)
    assert to(machine.redeliver(b, [0]), "b") == [0]
    assert (one.redelivery_count, other.redelivery_count) == (0, 1)
    machine.acked([(0, 10)])
    assert (a.unacked_messages, b.unacked_messages, len(a.held), len(b.held)) == (0, 0, 0, 0)


def test_reading_ahead_is_bounded() -> None:
    machine = KeySharedDispatcher()
    a, b = attach(machine, "a", "b")
    machine.flow(b, 10_000)
    slot = slot_for(machine, a)
    for base in range(0, 4_000, 100):
        assert machine.wanted() > 0
        offered = units(base, 100, slot=slot)
        assert machine.offer(offered, 0) == []
    assert machine.wanted() == 0
    assert offered[0].payload is None  # what waits long is not kept in memory
    assert len(to(machine.flow(a, 10), "a")) == 10
    assert machine.wanted() == 10


def test_the_subscription_limit_stops_new_messages_but_not_replays() -> None:
    machine = KeySharedDispatcher(unacked_messages_max=4)
    (a,) = attach(machine, "a", permits=100)
    offered = [Unit(base, base, base + 1, slot=1 + base % 3) for base in range(7)]
    assert to(machine.offer(offered, 0), "a") == [0, 1, 2, 3]
    assert machine.wanted() == 0
    assert to(machine.redeliver(a, [2]), "a") == [2]
    assert machine.acked(whole(0)) == []
    assert to(machine.acked(whole(1)), "a") == [4, 5]


def test_what_waits_behind_a_new_message_goes_out_when_that_is_acknowledged() -> None:
    """Found by key-shared-unordered, seed 60157: the slot stayed held up although its oldest unit was a replay."""
    machine = KeySharedDispatcher(unacked_messages_max=2)
    attach(machine, "a", permits=100)
    machine.offer([Unit(0, 0, 1, slot=1), Unit(1, 1, 2, slot=1)], 0)
    assert machine.blocked
    offered = [Unit(2, 2, 3, slot=9), Unit(3, 3, 4, slot=9, deliver_at_ms=500)]
    assert machine.offer(offered, 0) == []  # a read that was under way
    assert machine.tick(1_000) == []
    assert (
        machine.offer_due([Unit(3, 3, 4, slot=9)], [(3, 4)], 1_000) == []
    )  # new ones of its slot come first
    assert to(machine.acked(whole(2)), "a") == [3]


def test_a_consumer_limit_holds_up_only_its_own_keys() -> None:
    machine = KeySharedDispatcher()
    a, b = attach(machine, "a", "b", permits=100, unacked_messages_max=2)
    first, second = slot_for(machine, a), slot_for(machine, b)
    offered = [*units(0, 4, slot=first), *units(4, 1, slot=second)]
    assert sorted(delivered(machine.offer(offered, 0))) == [("a", 0), ("a", 1), ("b", 4)]
    assert delivered(machine.acked(whole(0))) == [("a", 2)]  # one left is half of two
    assert delivered(machine.acked(whole(1))) == [("a", 3)]


def test_limits_that_change_hold_at_once() -> None:
    machine = KeySharedDispatcher(unacked_messages_max=2)
    (a,) = attach(machine, "a", permits=100, unacked_messages_max=50)
    assert to(
        machine.offer([Unit(base, base, base + 1, slot=1 + base % 3) for base in range(9)], 0), "a"
    ) == [
        0,
        1,
    ]
    assert sorted(to(machine.limit_unacked(UnackedLimits(consumer=4, subscription=0)), "a")) == [2, 3]
    assert a.blocked
    assert machine.limit_unacked(UnackedLimits(consumer=0, subscription=4)) == []
    assert sorted(to(machine.limit_unacked(UnackedLimits(consumer=0, subscription=7)), "a")) == [4, 5, 6]


def test_delayed_messages_hold_up_nothing_of_their_key() -> None:
    machine = KeySharedDispatcher()
    attach(machine, "a", permits=10)
    offered = [Unit(0, 0, 1, slot=3, deliver_at_ms=1500), Unit(1, 1, 2, slot=3)]
    assert to(machine.offer(offered, 0), "a") == [1]
    assert machine.next_tick_ms == 2_000
    assert machine.tick(2_000) == []
    assert machine.due(machine.wanted_due()) == [0]
    assert to(machine.offer_due([Unit(0, 0, 1, slot=3)], [(0, 1)], 2_000), "a") == [0]


def test_acknowledged_while_it_waits() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a")
    machine.offer(units(0, 6, slot=3), 0)
    machine.acked([(0, 2), (3, 4)])
    assert to(machine.flow(a, 10), "a") == [2, 4, 5]
    machine.acked([(0, 10)])
    assert machine.waiting_count == 0


def test_the_last_one_to_leave_ends_all_memory() -> None:
    machine = KeySharedDispatcher()
    (a,) = attach(machine, "a", permits=2)
    machine.offer(units(0, 3, slot=9), 0)
    assert rewinds(machine.remove_consumer(a)) == 1
    attach(machine, "b", permits=10)
    assert to(machine.offer(units(0, 3, slot=9), 0), "b") == [0, 1, 2]


def test_a_full_connection_holds_up_only_its_own_keys() -> None:
    machine = KeySharedDispatcher()
    a, b = attach(machine, "a", "b", permits=10)
    machine.set_writable(a, False)
    offered = [*units(0, 1, slot=slot_for(machine, a)), *units(1, 1, slot=slot_for(machine, b))]
    assert delivered(machine.offer(offered, 0)) == [("b", 1)]
    assert delivered(machine.set_writable(a, True)) == [("a", 0)]
