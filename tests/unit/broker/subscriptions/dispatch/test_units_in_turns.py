"""What a consumer with very many units wants, or leaves behind, is done a part in each turn of the event loop."""

from collections.abc import Callable

import pytest

from magnetar.broker.subscriptions.dispatch.key_shared import KeySharedDispatcher, Slot
from magnetar.broker.subscriptions.dispatch.model import Actions, Consumer, Deliver, Unit
from magnetar.broker.subscriptions.dispatch.multi import UNITS_AT_ONCE, MultiConsumerDispatcher
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher
from tests.unit.broker.subscriptions.dispatch.dispatch_driver import consumer, delivered, whole

COUNT = 3 * UNITS_AT_ONCE + 500
SLOTS = 3000

Make = Callable[[], MultiConsumerDispatcher]
both = pytest.mark.parametrize("make", [SharedDispatcher, KeySharedDispatcher])


def offered(start: int, count: int) -> list[Unit]:
    return [Unit(base, base, base + 1, slot=1 + base % SLOTS) for base in range(start, start + count)]


def holding(make: Make) -> tuple[MultiConsumerDispatcher, Consumer]:
    """A consumer that holds `COUNT` units."""
    machine, holder = make(), consumer("a")
    machine.add_consumer(holder)
    machine.flow(holder, COUNT)
    for start in range(0, COUNT, 100):
        machine.offer(offered(start, 100), 0)
    assert len(holder.held) == COUNT
    return machine, holder


def ended(machine: MultiConsumerDispatcher, first: Actions) -> list[Actions]:
    """What is done from `first` on, turn by turn."""
    turns = [first]
    while machine.next_tick_ms == 0:
        turns.append(machine.tick(0))
    assert machine.next_tick_ms is None
    return turns


def bases(turns: list[Actions]) -> list[int]:
    return [base for actions in turns for _, base in delivered(actions)]


@both
def test_what_is_wanted_again_goes_out_in_turns_and_nothing_new_overtakes_it(make: Make) -> None:
    machine, holder = holding(make)
    machine.flow(holder, COUNT + 10)
    first = machine.redeliver(holder)
    assert machine.wanted() == 0
    assert delivered(machine.offer(offered(COUNT, 10), 0)) == []
    turns = ended(machine, first)
    assert bases(turns) == list(range(COUNT + 10))
    assert max(len(delivered(actions)) for actions in turns) <= UNITS_AT_ONCE
    counts = {unit.redelivery_count for unit in holder.held if unit.base_offset < COUNT}
    assert counts == {1}
    assert machine.wanted() > 0 or holder.permits == 0


@both
def test_what_a_consumer_leaves_goes_to_the_others_in_turns(make: Make) -> None:
    machine, holder = holding(make)
    other = consumer("b")
    machine.add_consumer(other)
    machine.flow(other, COUNT)
    turns = ended(machine, machine.remove_consumer(holder))
    assert sorted(bases(turns)) == list(range(COUNT))
    assert max(len(delivered(actions)) for actions in turns) <= UNITS_AT_ONCE
    for slot in range(1, 1 + SLOTS, 500):
        mine = [base for base in bases(turns) if 1 + base % SLOTS == slot]
        assert mine == sorted(mine)
    assert machine.unacked_messages == other.unacked_messages == COUNT
    assert (holder.held, holder.unacked_messages) == (set(), 0)


@both
def test_what_waits_for_permits_goes_out_in_turns(make: Make) -> None:
    machine, holder = holding(make)
    ended(machine, machine.redeliver(holder))
    turns = ended(machine, machine.flow(holder, COUNT))
    assert bases(turns) == list(range(COUNT))
    assert max(len(delivered(actions)) for actions in turns) <= UNITS_AT_ONCE


@both
def test_what_is_wanted_twice_in_one_moment_counts_once_and_what_is_acknowledged_stays_away(
    make: Make,
) -> None:
    machine, holder = holding(make)
    machine.redeliver(holder)
    machine.acked(whole(COUNT - 1))
    ended(machine, machine.redeliver(holder))
    turns = ended(machine, machine.flow(holder, COUNT))
    found = [
        unit for turn in turns for action in turn if isinstance(action, Deliver) for unit in action.units
    ]
    assert [unit.base_offset for unit in found] == list(range(COUNT - 1))
    assert {unit.redelivery_count for unit in found} == {1}


def test_the_owners_of_very_many_slots_are_found_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.broker.subscriptions.dispatch.key_shared.SLOTS_AT_ONCE", 500)
    machine, holder = holding(KeySharedDispatcher)
    assert isinstance(machine, KeySharedDispatcher)
    ended(machine, machine.redeliver(holder))
    found: list[Slot] = []
    find = KeySharedDispatcher._queue

    def counted(dispatcher: KeySharedDispatcher, slot: Slot) -> None:
        found.append(slot)
        find(dispatcher, slot)

    monkeypatch.setattr(KeySharedDispatcher, "_queue", counted)
    other = consumer("b")
    machine.add_consumer(other)
    assert len(found) == 500
    ended(machine, [])
    assert len(set(found)) == len(found) == SLOTS
    ended(machine, machine.flow(other, COUNT))
    ended(machine, machine.flow(holder, COUNT))
    assert len(holder.held) + len(other.held) == COUNT
    for one in (holder, other):
        assert {machine.owner(unit.slot) for unit in one.held} == {one}
