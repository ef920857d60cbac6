"""What the leader decides."""

from collections.abc import Mapping

import pytest

from magnetar.broker.cluster.bundles import Bundle, bundles_of
from magnetar.broker.cluster.ownership.leader import (
    BUNDLES_PER_COMMIT,
    MOVES_MAX,
    PATIENCE_S,
    Leader,
    ask,
)
from magnetar.broker.cluster.ownership.records import Record, Wish, alive, put_record, record_path
from magnetar.broker.cluster.ownership.view import View
from magnetar.metadata.store import Check, Put, Versioned

LOW, HIGH = bundles_of("t/n", 2)


class World:
    """What the broker `b1` sees, which leads."""

    def __init__(self, *others: str, loads: Mapping[Bundle, float] | None = None) -> None:
        self.view = View()
        self.view.alive |= {"b1", *others}
        self.leader = Leader("b1", self.view, lambda: loads or {})

    def record(self, bundle: Bundle, owner: str, generation: int = 3, version: int = 4) -> Record:
        put = put_record(bundle, owner, generation)
        self.view.learn(put.path, Versioned(put.value, version))
        return self.view.records[bundle]

    def wish(self, wish: Wish) -> None:
        self.view.learn(wish.path, Versioned(wish.put().value, 0))


def test_bundles_of_brokers_that_are_gone_go_to_others_under_the_next_generation() -> None:
    world = World("b2")
    world.record(LOW, "b9")
    world.record(HIGH, "", generation=0, version=0)
    assert world.leader.decide(0.0) == [
        [alive("b1"), alive("b2"), put_record(LOW, "b1", 4, 4), put_record(HIGH, "b2", 1, 0)]
    ]


def test_a_broker_that_does_not_lead_decides_nothing() -> None:
    world = World("b0")
    world.record(LOW, "b9")
    assert world.leader.decide(0.0) == []


def test_a_commit_gives_to_a_limited_number() -> None:
    world = World()
    for bundle in bundles_of("t/n", BUNDLES_PER_COMMIT + 1):
        world.record(bundle, "")
    first, second = world.leader.decide(0.0)
    assert len(first) == 1 + BUNDLES_PER_COMMIT
    assert len(second) == 1 + 1


def test_what_was_wished_of_a_broker_that_is_gone_goes_with_it() -> None:
    world = World()
    world.record(LOW, "b9")
    world.wish(Wish(LOW, 3, "b1"))
    assert world.leader.decide(0.0) == [[alive("b1"), put_record(LOW, "b1", 4, 4), Wish(LOW, 3).delete()]]
    assert world.leader.decide(PATIENCE_S) == world.leader.decide(0.0)


@pytest.mark.parametrize(
    ("to", "steps"),
    [
        ("b2", [alive("b2"), put_record(LOW, "b2", 4, 4)]),
        ("b9", [put_record(LOW, "", 3, 4)]),
        ("", [put_record(LOW, "", 3, 4)]),
    ],
)
def test_an_owner_that_does_not_let_go_in_time_loses_the_bundle(to: str, steps: list[Put | Check]) -> None:
    world = World("b2")
    world.record(LOW, "b1")
    world.wish(Wish(LOW, 3, to))
    assert world.leader.decide(10.0) == []
    assert world.leader.decide(10.0 + PATIENCE_S - 0.1) == []
    assert world.leader.decide(10.0 + PATIENCE_S) == [[alive("b1"), Wish(LOW, 3).delete(), *steps]]


def test_an_owner_has_the_same_time_for_each_wish() -> None:
    world = World("b2")
    world.record(LOW, "b1")
    world.wish(Wish(LOW, 3, "b2"))
    world.leader.decide(0.0)
    world.record(LOW, "b2", 4, 5)
    world.wish(Wish(LOW, 4, "b1"))
    assert world.leader.decide(PATIENCE_S) == []


def test_a_broker_that_leads_again_is_patient_from_then_on() -> None:
    world = World()
    world.record(LOW, "b1")
    world.wish(Wish(LOW, 3))
    world.leader.decide(0.0)
    world.view.alive.add("b0")
    world.leader.decide(1.0)
    world.view.alive.discard("b0")
    assert world.leader.decide(PATIENCE_S) == []


def test_wishes_whose_generation_is_over_are_removed() -> None:
    world = World()
    world.record(LOW, "b1", generation=4)
    world.wish(Wish(LOW, 3))
    world.wish(Wish(HIGH, 3))
    assert world.leader.decide(0.0) == [
        [alive("b1"), Wish(LOW, 3).delete()],
        [alive("b1"), Wish(HIGH, 3).delete()],
    ]


def test_a_new_broker_is_given_bundles_by_wishes_of_their_owners() -> None:
    world = World("b2")
    low, high = world.record(LOW, "b1"), world.record(HIGH, "b1")
    (steps,) = world.leader.decide(0.0)
    moving = max(low, high, key=lambda record: record.bundle)
    assert steps == [alive("b1"), alive("b2"), *ask(moving, "b2")]
    assert steps[2:] == [Check(record_path(moving.bundle), 4), Wish(moving.bundle, 3, "b2").put()]


def test_what_is_moving_counts_where_it_goes() -> None:
    """Else as many would follow as have not arrived, and then move back."""
    world = World("b2")
    for bundle in bundles_of("t/n", 4):
        world.record(bundle, "b1")
    world.wish(Wish(bundles_of("t/n", 4)[0], 3, "b2"))
    (steps,) = world.leader.decide(0.0)
    world.wish(Wish(bundles_of("t/n", 4)[3], 3, "b2"))
    assert alive("b2") in steps
    assert world.leader.decide(0.0) == []


def test_loads_count() -> None:
    world = World("b2", loads={LOW: 5.0})
    quarter = bundles_of("t/m", 4)
    world.record(LOW, "b1")
    for bundle in quarter:
        world.record(bundle, "b2")
    assert world.leader.decide(0.0) == []


def test_nothing_moves_while_bundles_have_no_owner() -> None:
    world = World("b2")
    many = bundles_of("t/n", 8)
    for bundle in many[1:]:
        world.record(bundle, "b1")
    world.record(many[0], "")
    (steps,) = world.leader.decide(0.0)
    assert steps == [alive("b1"), alive("b2"), put_record(many[0], "b2", 4, 4)]


def test_few_move_at_a_time() -> None:
    world = World("b2")
    for bundle in bundles_of("t/n", 64):
        world.record(bundle, "b1")
    assert len(world.leader.decide(0.0)) == MOVES_MAX
    world.wish(Wish(bundles_of("t/n", 64)[0], 3, "b2"))
    assert len(world.leader.decide(0.0)) == MOVES_MAX - 1
