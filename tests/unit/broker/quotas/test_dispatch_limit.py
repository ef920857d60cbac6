"""Readers of one limit take turns: none overtakes those that wait, none starves, and none is forgotten."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.quotas import dispatch_limit
from magnetar.broker.quotas.dispatch_limit import TURN_S, DispatchLimit
from magnetar.broker.quotas.model import Rate
from magnetar.ledger.entry import Entry
from magnetar.testing.clock import FakeClock


class Reader:
    """Takes `amount` messages whenever it is let; never has enough."""

    def __init__(self, limit: DispatchLimit, name: str, amount: int = 1) -> None:
        self.limit = limit
        self.name = name
        self.amount = amount
        self.got = 0
        self.turns = 0

    def go_on(self) -> None:
        self.turns += 1
        while self.limit.admits(self.name):
            self.limit.used(self.amount, 0)
            self.got += self.amount
        self.limit.wait(self.name, self.go_on)


def test_a_period_is_had_at_once_and_the_rest_as_it_comes() -> None:
    clock = FakeClock()
    reader = Reader(DispatchLimit(Rate(10, 0), clock), "a")
    reader.go_on()
    assert reader.got == 11, "whole entries: the last one is paid for afterwards"
    clock.advance(5)
    assert 59 <= reader.got <= 61
    clock.advance(5)
    assert 108 <= reader.got <= 111
    assert reader.turns < 150, "it is called when it may go on, and not to look"


def test_readers_share_whatever_they_take_at_once() -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(100, 0), clock)
    readers = [Reader(limit, name, amount) for name, amount in (("a", 1), ("b", 1), ("c", 1), ("d", 50))]
    for reader in readers:
        reader.go_on()
    clock.advance(60)
    assert 5_900 <= sum(reader.got for reader in readers) <= 6_200
    turns = [reader.turns for reader in readers]
    assert max(turns) - min(turns) <= 2, turns
    assert all(reader.got > 50 for reader in readers)


def test_who_comes_while_others_wait_does_not_overtake_them() -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(10, 0), clock)
    first, second = Reader(limit, "first"), Reader(limit, "second")
    first.go_on()
    clock.advance(0.05)
    # Nothing is owed an instant before its turn: it would come first if it were let.
    limit.used(-1, 0)
    assert not limit.owed_s()
    assert not limit.admits("second")
    second.go_on()
    assert second.got == 0
    clock.advance(1)
    assert second.got > 0


def test_a_reader_that_waits_is_let_only_in_its_turn() -> None:
    # One that asks all the time would use up what has come before the turn of the others.
    clock = FakeClock()
    limit = DispatchLimit(Rate(1_000, 0), clock)
    calm, eager = Reader(limit, "calm"), Reader(limit, "eager")
    eager.go_on()
    calm.go_on()
    for _ in range(2_000):
        clock.advance(TURN_S / 10)
        if limit.admits("eager"):
            eager.go_on()
    assert calm.got > eager.got / 4


def test_a_reader_that_comes_and_goes_has_its_turn_after_those_that_had_it_longer_ago() -> None:
    # A fetch waits for half a second and comes again; a subscription waits all the time.
    clock = FakeClock()
    limit = DispatchLimit(Rate(1, 0), clock)
    always, fleeting = Reader(limit, "always", 100), Reader(limit, "fleeting", 100)
    always.go_on()
    fleeting.go_on()
    for _ in range(2_000):
        clock.advance(0.5)
        limit.leave("fleeting")
        limit.wait("fleeting", fleeting.go_on)
    assert abs(always.turns - fleeting.turns) <= 2
    assert fleeting.got >= 400


def test_one_that_does_not_use_its_turn_holds_no_other_up() -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(100, 0), clock)
    reader = Reader(limit, "reader")
    reader.go_on()

    def idle() -> None:
        limit.wait("idle", idle)

    idle()
    clock.advance(10)
    assert reader.got >= 950


def test_readers_that_want_little_do_not_wait_for_each_other() -> None:
    # Fifty that wanted a message each had a turn of 20 ms each, however much was left: never faster again.
    clock = FakeClock()
    limit = DispatchLimit(Rate(1_000, 0), clock)
    limit.used(1_001, 0)
    called: list[int] = []

    def take(reader: int) -> None:
        limit.used(1, 0)
        called.append(reader)
        limit.pass_turn(reader)

    for reader in range(50):
        limit.wait(reader, partial(take, reader))
    clock.advance(0.1)
    assert called == list(range(50))
    assert limit._timer is None
    limit.pass_turn(7)
    assert limit.admits("another")


def test_one_that_is_done_without_a_turn_takes_none_from_another() -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(10, 0), clock)
    limit.used(11, 0)
    for reader in "ab":
        limit.wait(reader, lambda: None)
    clock.advance(0.11)
    limit.pass_turn("b")
    assert limit.admits("a")
    limit.used(1, 0)
    limit.pass_turn("a")
    clock.advance(0.08)
    assert not limit.admits("b"), "what is owed is waited for"
    clock.advance(0.03)
    assert limit.admits("b")


def test_nothing_is_called_after_leaving_and_there_is_no_timer_then() -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(1, 0), clock)
    limit.used(10, 0)
    called: list[str] = []
    limit.wait("a", lambda: called.append("a"))
    limit.wait("b", lambda: called.append("b"))
    limit.leave("a")
    clock.advance(10)
    assert called == ["b"]
    limit.used(10, 0)
    limit.wait("a", lambda: called.append("a"))
    limit.leave("a")
    limit.leave("a")
    assert all(timer.cancelled for _, _, timer in clock._timers)


def test_a_limit_that_is_lifted_lets_all_go_on_at_once() -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(1, 0), clock)
    limit.used(1_000_000, 0)
    called: list[str] = []
    for name in "ab":
        limit.wait(name, partial(called.append, name))
    limit.close()
    assert called == ["a", "b"]
    clock.advance(2_000_000)
    assert called == ["a", "b"]


@pytest.mark.parametrize(
    ("rate", "count"),
    [(Rate(10, 0), 3), (Rate(0, 100), 2), (Rate(10, 100), 2), (Rate(1, 1), 1), (Rate(1_000, 0), 5)],
)
def test_as_many_whole_entries_fit_as_reach_what_is_left(rate: Rate, count: int) -> None:
    limit = DispatchLimit(rate, FakeClock())
    entries = [Entry(4 * n, 4 * n + 3, 0, memoryview(bytes(60))) for n in range(5)]
    assert limit.fitting(entries) == count
    assert limit.fitting([]) == 0
    limit.used(1_000_000, 1_000_000)
    assert limit.fitting(entries) == 1, "it was let, so it gets something"


def test_what_is_remembered_of_readers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_limit, "_READERS_MAX", 3)
    clock = FakeClock()
    limit = DispatchLimit(Rate(1_000, 0), clock)
    for number in range(10):
        limit.wait(number, lambda: None)
        clock.advance(1)
    assert list(limit._served) == [7, 8, 9]


READERS = "abc"
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["take", "leave", "done"]), st.sampled_from(READERS), st.integers(1, 40)),
        st.tuples(st.just("pass"), st.just(""), st.integers(1, 2_000)),
    ),
    max_size=60,
)


@given(STEPS)
def test_average_and_turns_whatever_readers_do(steps: list[tuple[str, str, int]]) -> None:
    clock = FakeClock()
    limit = DispatchLimit(Rate(20, 0), clock)
    got: Counter[str] = Counter()

    def take(name: str, amount: int) -> None:
        if limit.admits(name):
            assert got.total() <= 20 * (clock.monotonic() + 1) + 1e-6
            limit.used(amount, 0)
            got[name] += amount
        else:
            limit.wait(name, lambda: take(name, amount))

    for kind, name, amount in steps:
        if kind == "take":
            take(name, amount)
        elif kind == "leave":
            limit.leave(name)
        elif kind == "done":
            limit.pass_turn(name)
        else:
            clock.advance(amount / 1000)
        assert (limit._timer is not None) == bool(limit._waiting or limit._turn is not None)
    clock.advance(40 * 60)
    assert not limit._waiting, "all had their turn"
    assert limit._timer is None


def test_a_turn_is_the_readers_alone_until_it_has_used_it() -> None:
    # A subscription reads in the next turn of the event loop: a message for another one may come before that.
    clock = FakeClock()
    limit = DispatchLimit(Rate(10, 0), clock)
    limit.used(11, 0)
    called: list[str] = []
    limit.wait("a", partial(called.append, "a"))
    clock.advance(0.11)
    assert called == ["a"]
    assert not limit.admits("b")
    assert limit.admits("a")
    clock.advance(TURN_S)
    assert limit.admits("b"), "it is over, and none waits"
