"""What a broker does with its bundles, change by change."""

from collections.abc import Sequence

from magnetar.broker.cluster.bundles import Bundle, bundles_of
from magnetar.broker.cluster.ownership.owner import Action, Drop, Hold, Owner, Serve, Stop
from magnetar.broker.cluster.ownership.records import Record, Wish, alive, put_record, record_path
from magnetar.broker.cluster.ownership.view import View
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, Versioned

LOW, HIGH = bundles_of("t/n", 2)


class World:
    """One broker, `b1`, and what it hears."""

    def __init__(self) -> None:
        self.view = View()
        self.view.alive |= {"b1", "b2"}
        self.owner = Owner("b1", self.view)

    def record(self, owner: str, generation: int, version: int, bundle: Bundle = LOW) -> Sequence[Action]:
        put = put_record(bundle, owner, generation)
        self.view.learn(put.path, Versioned(put.value, version))
        return self.owner.look_at([bundle])

    def wish(self, wish: Wish) -> Sequence[Action]:
        self.view.learn(wish.path, Versioned(wish.put().value, 0))
        return self.owner.look_at([wish.bundle])

    def held(self, generation: int = 3, version: int = 4) -> Hold:
        self.record("b1", generation, version)
        return Hold(Record(LOW, "b1", generation, version))

    def stopped(self, wish: Wish) -> Hold:
        hold = self.held()
        self.wish(wish)
        self.owner.stopped(hold)
        return hold


def test_a_broker_serves_what_a_record_names_it_for() -> None:
    world = World()
    assert world.record("b2", 2, 3) == []
    hold = Hold(Record(LOW, "b1", 3, 4))
    assert world.record("b1", 3, 4) == [Serve(hold)]
    assert world.owner.look_at([LOW]) == []
    assert world.owner.holds == [hold]
    assert world.owner.serving("t/n", LOW.low) == hold
    assert world.owner.serving("t/n", HIGH.low) is None


def test_commits_of_a_hold_depend_on_the_record_and_on_the_brokers_life() -> None:
    hold = World().held()
    assert hold.generation == 3
    assert [(check.path, check.expected_version) for check in hold.checks] == [
        (record_path(LOW), 4),
        ("/cluster/brokers/b1", 0),
    ]


def test_an_owner_that_is_deposed_drops_the_bundle_at_once() -> None:
    world = World()
    hold = world.held()
    assert world.record("b2", 4, 5) == [Drop(hold)]
    assert world.owner.serving("t/n", LOW.low) is None


def test_an_owner_whose_record_goes_drops_the_bundle() -> None:
    world = World()
    hold = world.held()
    world.view.learn(record_path(LOW), None)
    assert world.owner.look_at([LOW]) == [Drop(hold)]


def test_an_owner_that_is_deposed_and_named_again_begins_anew() -> None:
    world = World()
    hold = world.held()
    assert world.record("b1", 5, 6) == [Drop(hold), Serve(Hold(Record(LOW, "b1", 5, 6)))]


def test_a_wish_stops_the_bundle_once() -> None:
    world = World()
    hold = world.held()
    assert world.wish(Wish(LOW, 3)) == [Stop(hold)]
    assert world.owner.look_at([LOW]) == []
    assert world.owner.serving("t/n", LOW.low) is None


def test_a_wish_of_another_generation_stops_nothing() -> None:
    world = World()
    world.held()
    assert world.wish(Wish(LOW, 2)) == []


def test_a_wish_that_was_there_before_stops_the_bundle_when_it_begins() -> None:
    world = World()
    world.wish(Wish(LOW, 3))
    hold = Hold(Record(LOW, "b1", 3, 4))
    assert world.record("b1", 3, 4) == [Serve(hold), Stop(hold)]


def test_nothing_is_handed_over_before_it_is_stopped() -> None:
    world = World()
    hold = world.held()
    assert world.owner.handovers() == []
    world.wish(Wish(LOW, 3, "b2"))
    assert world.owner.handovers() == []
    world.owner.stopped(hold)
    assert len(world.owner.handovers()) == 1


def test_a_bundle_is_passed_to_the_broker_that_the_wish_names_under_the_next_generation() -> None:
    world = World()
    world.stopped(Wish(LOW, 3, "b2"))
    assert world.owner.handovers() == [
        [alive("b1"), Wish(LOW, 3, "b2").delete(), alive("b2"), put_record(LOW, "b2", 4, 4)]
    ]


def test_a_bundle_is_let_go_if_the_wish_names_no_broker_that_is_alive() -> None:
    for to in ("", "b9"):
        world = World()
        world.stopped(Wish(LOW, 3, to))
        assert world.owner.handovers() == [
            [alive("b1"), Wish(LOW, 3, to).delete(), put_record(LOW, "", 3, 4)]
        ]


def test_a_bundle_whose_wish_has_gone_meanwhile_is_let_go() -> None:
    world = World()
    world.stopped(Wish(LOW, 3, "b2"))
    world.view.learn(Wish(LOW, 3).path, None)
    assert world.owner.handovers() == [[alive("b1"), put_record(LOW, "", 3, 4)]]


def test_both_parts_of_a_split_bundle_have_the_next_generation() -> None:
    world = World()
    wish = Wish(LOW, 3, boundary=LOW.middle)
    world.stopped(wish)
    parts = LOW.split(LOW.middle)
    assert world.owner.handovers() == [
        [
            alive("b1"),
            wish.delete(),
            Delete(record_path(LOW), 4),
            *(put_record(part, "b1", 4, MUST_NOT_EXIST) for part in parts),
        ]
    ]
    world.view.learn(record_path(LOW), None)
    assert world.owner.look_at([LOW]) == []
    assert world.record("b1", 4, 0, parts[0]) == [Serve(Hold(Record(parts[0], "b1", 4, 0)))]


def test_a_bundle_that_was_handed_over_is_not_dropped_once_more() -> None:
    world = World()
    world.stopped(Wish(LOW, 3, "b2"))
    assert world.record("b2", 4, 5) == []
    assert world.owner.holds == []
    assert world.owner.handovers() == []


def test_a_bundle_that_is_taken_away_while_it_stops_is_dropped() -> None:
    world = World()
    hold = world.held()
    world.wish(Wish(LOW, 3))
    assert world.record("b2", 4, 5) == [Drop(hold)]
    world.record("b1", 5, 6)
    world.owner.stopped(hold)  # the old one: the new one is served
    assert world.owner.serving("t/n", LOW.low) is not None
    assert world.owner.handovers() == []


def test_a_broker_that_leaves_stops_everything_and_takes_nothing_more() -> None:
    world = World()
    hold = world.held()
    world.record("b1", 1, 0, HIGH)
    world.wish(Wish(LOW, 3))
    assert world.owner.leave() == [Stop(Hold(Record(HIGH, "b1", 1, 0)))]
    world.owner.stopped(hold)
    assert world.owner.handovers() == []
    assert world.record("b2", 4, 5) == []
    assert world.record("b1", 5, 6) == []


def test_the_end_of_the_session_drops_what_is_not_stopped() -> None:
    world = World()
    world.stopped(Wish(LOW, 3))
    world.record("b1", 1, 0, HIGH)
    assert world.owner.end() == [Drop(Hold(Record(HIGH, "b1", 1, 0)))]
    assert world.owner.holds == []
    assert world.owner.end() == []
    assert world.record("b1", 7, 8) == []
