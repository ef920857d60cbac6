"""When reading pauses and resumes: each rule alone, and all of them together on random walks."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from magnetar.protocols.backpressure import Backpressure
from tests.examples import at_least
from tests.unit.protocols.doubles import Connection

REQUESTS_MAX = 4
BYTES_MAX = 100


def nothing() -> None: ...


def made(
    memory_bytes_max: int = 1 << 30,
    go_on: Callable[[], None] = nothing,
    ran_short: Callable[[], None] | None = None,
) -> tuple[Connection, Backpressure]:
    peer = Connection(memory_bytes_max)
    return peer, Backpressure(peer, peer.traffic, REQUESTS_MAX, BYTES_MAX, go_on, ran_short)


@pytest.mark.parametrize(("size", "most"), [(0, REQUESTS_MAX), (1, REQUESTS_MAX), (BYTES_MAX // 3, 3)])
def test_reading_pauses_past_a_limit_and_resumes_at_half_of_it(size: int, most: int) -> None:
    peer, one = made()
    for _ in range(most):
        one.began(size)
        assert peer.is_read
    one.began(size)
    assert not peer.is_read
    assert one.is_paused
    while one.unanswered > most // 2 + 1:
        one.ended(size)
        assert not peer.is_read
    one.ended(size)
    assert peer.is_read
    assert not one.is_paused


def test_a_limit_itself_is_within_it_and_so_is_its_half() -> None:
    peer, one = made()
    one.began(BYTES_MAX)
    assert peer.is_read
    one.began(1)
    assert not peer.is_read
    one.ended(BYTES_MAX // 2)
    assert not peer.is_read, "51 are left"
    one.ended(1)
    assert peer.is_read


def test_what_a_request_holds_may_grow_and_shrink_and_counts_for_all_connections() -> None:
    peer, one = made()
    one.began(10)
    one.began(BYTES_MAX - 9, 0)
    assert one.unanswered == 1
    assert not peer.is_read
    assert peer.queued_bytes == peer.memory.used == one.unanswered_bytes == BYTES_MAX + 1
    one.ended(BYTES_MAX, 0)
    assert peer.is_read
    assert one.unanswered == 1
    one.began(1)
    one.ended(2, 2)
    assert (one.unanswered, one.unanswered_bytes, peer.queued_bytes, peer.memory.used) == (0, 0, 0, 0)


def test_past_what_all_connections_may_hold_a_request_pauses_and_memory_resumes() -> None:
    short: list[bool] = []
    peer, one = made(50, ran_short=lambda: short.append(one.is_paused))
    one.began(50)
    assert peer.is_read
    assert not short
    one.began(1)
    assert not peer.is_read
    assert short == [True]
    assert peer.memory.held == [one]
    one.ended(0, 0)
    assert not peer.is_read
    assert peer.memory.held == [one]
    one.ended(51, 2)
    assert peer.is_read
    assert not peer.memory.held, "it would be resumed twice"


def test_what_only_handling_requests_makes_room_for_pauses_nothing() -> None:
    peer, one = made(50)
    peer.memory.is_lenient = True
    one.began(60)
    assert peer.is_read
    peer.memory.is_lenient = False
    one.began(0)
    assert not peer.is_read


def test_memory_that_others_give_back_resumes_when_it_is_told() -> None:
    peer, one = made(50)
    peer.memory.take(51)
    assert not one.is_paused
    one.look()
    assert not peer.is_read
    peer.memory.give(51)
    assert not peer.is_read
    peer.memory.serve()
    assert peer.is_read


def test_a_session_that_looks_while_there_is_memory_goes_on() -> None:
    short: list[bool] = []
    peer, one = made(50, ran_short=lambda: short.append(True))
    one.look()
    assert peer.is_read
    for _ in range(REQUESTS_MAX + 1):
        one.began(0)
    assert not peer.is_read
    assert not short, "it is this connection's own limit"
    assert not peer.memory.held


def test_a_pause_for_another_reason_is_held_while_memory_is_short() -> None:
    peer, one = made(50)
    peer.memory.take(51)
    one.pause()
    assert peer.memory.held == [one]
    one.at_work = object()
    peer.memory.give(51)
    peer.memory.serve()
    assert not peer.is_read
    peer.memory.take(51)
    one.at_work = None
    one.resume_if_possible()
    assert peer.memory.held == [one]
    peer.memory.give(51)
    peer.memory.serve()
    assert peer.is_read


@pytest.mark.parametrize("obstacle", ["at_work", "outbox_is_full"])
def test_what_stands_in_the_way_keeps_reading_paused(obstacle: str) -> None:
    handled: list[int] = []
    peer, one = made(go_on=lambda: handled.append(1))
    setattr(one, obstacle, True)
    assert peer.is_read
    one.pause()
    one.resume_if_possible()
    assert not peer.is_read
    assert not handled
    setattr(one, obstacle, None if obstacle == "at_work" else False)
    one.resume_if_possible()
    assert peer.is_read
    assert handled == [1]
    one.resume_if_possible()
    assert handled == [1], "it was not paused"


def test_a_client_that_has_exceeded_a_quota_is_read_from_again_when_its_time_is_up() -> None:
    handled: list[int] = []
    peer, one = made(go_on=lambda: handled.append(1))
    one.throttle()
    assert not peer.is_read
    one.resume_if_possible()
    assert not peer.is_read
    assert not handled
    one.end_throttle()
    assert peer.is_read
    assert handled == [1]


def test_a_turn_is_awaited_once_and_what_was_held_is_handled_in_it() -> None:
    handled: list[int] = []
    peer, one = made(go_on=lambda: handled.append(1))
    one.await_turn()
    one.await_turn()
    assert not peer.is_read
    assert len(peer.turns.calls) == 1
    one.resume_if_possible()
    assert not handled
    peer.turns.have()
    assert handled == [1]
    assert peer.is_read
    one.await_turn()
    peer.turns.have()
    assert handled == [1, 1]


def test_while_a_frame_waits_for_memory_what_came_before_it_is_handled_and_nothing_is_read() -> None:
    handled: list[int] = []
    peer, one = made(go_on=lambda: handled.append(1))
    one.awaits_memory = True
    one.pause()
    one.resume_if_possible()
    assert handled == [1]
    assert not peer.is_read
    assert one.is_paused
    one.awaits_memory = False
    one.resume_if_possible()
    assert handled == [1, 1]
    assert peer.is_read


def test_what_is_answered_while_it_goes_on_does_not_make_it_go_on_inside_itself() -> None:
    depth: list[int] = []

    def go_on() -> None:
        depth.append(1)
        if len(depth) == 1:
            one.began(BYTES_MAX + 1)
            one.ended(BYTES_MAX + 1)
            assert depth == [1]

    peer, one = made(go_on=go_on)
    one.pause()
    one.resume_if_possible()
    assert not peer.is_read
    peer.turns.have()
    assert depth == [1, 1]
    assert peer.is_read


def test_what_pauses_it_while_it_goes_on_keeps_it_paused_without_a_turn() -> None:
    peer, one = made(go_on=lambda: one.began(BYTES_MAX + 1))
    one.pause()
    one.resume_if_possible()
    assert not peer.is_read
    assert not peer.turns.calls, "an answer resumes it"


@pytest.mark.parametrize("unanswered", [0, 2])
def test_the_end_waits_for_what_is_unanswered_and_is_told_once(unanswered: int) -> None:
    handled: list[int] = []
    ended: list[int] = []
    peer, one = made(go_on=lambda: handled.append(1))
    for _ in range(unanswered):
        one.began(1)
    one.finish(lambda: ended.append(1))
    for _ in range(unanswered):
        assert not ended
        one.ended(1)
    assert ended == [1]
    one.resume_if_possible()
    assert ended == [1]
    assert one.is_paused
    assert not handled
    assert peer.memory.used == 0


def test_after_the_end_nothing_is_handled_or_read_and_answers_are_still_counted() -> None:
    handled: list[int] = []
    peer, one = made(60, go_on=lambda: handled.append(1))
    one.began(61)
    one.await_turn()
    assert peer.memory.held == [one]
    one.close()
    assert not peer.memory.held
    assert one.is_paused
    peer.turns.have()
    one.ended(61)
    assert not handled
    assert not peer.is_read
    assert (one.unanswered, one.unanswered_bytes, peer.queued_bytes, peer.memory.used) == (0, 0, 0, 0)


def test_a_connection_that_is_lost_while_it_finishes_is_not_told_of_its_last_answer() -> None:
    ended: list[int] = []
    _, one = made()
    one.began(1)
    one.finish(lambda: ended.append(1))
    one.close()
    one.ended(1)
    assert not ended


def test_a_connection_that_ends_while_it_goes_on_is_not_read_from() -> None:
    peer, one = made(go_on=lambda: one.close())
    one.pause()
    one.resume_if_possible()
    assert not peer.is_read
    assert not peer.turns.calls


class Walk(RuleBasedStateMachine):
    """A session that receives requests, some of which all others wait for, among connections that hold memory too."""

    MEMORY_BYTES_MAX = 250

    def __init__(self) -> None:
        super().__init__()
        self.shortages = 0
        self.peer, self.one = made(self.MEMORY_BYTES_MAX, self.handle_held, self.note_shortage)
        self.held: deque[tuple[int, bool]] = deque()
        self.at_work: list[int] = []  # what each request holds
        self.others = 0
        self.leaves_for_later = False
        self.is_ended = False
        self.farewells = 0
        self.finishes = False

    def note_shortage(self) -> None:
        assert self.one.is_paused
        self.shortages += 1

    def handle_held(self) -> None:
        assert not self.is_ended
        while self.held and not self.one.is_paused and self.one.at_work is None:
            if self.leaves_for_later:
                self.leaves_for_later = False
                self.one.await_turn()
                return
            self.handle(*self.held.popleft())
        if self.held:
            self.one.pause()

    def handle(self, size: int, mutes: bool) -> None:
        self.at_work.append(size)
        self.one.began(size)
        if mutes:
            self.one.at_work = self.at_work

    @precondition(lambda self: self.peer.is_read)
    @rule(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6), mutes=st.booleans())
    def receive(self, sizes: list[int], mutes: bool) -> None:
        for size in sizes:
            if self.one.is_paused or self.one.at_work is not None:
                self.held.append((size, mutes))
                self.one.pause()
            else:
                self.handle(size, mutes)

    @precondition(lambda self: self.at_work)
    @rule(index=st.integers(0, 100), at_once=st.integers(1, 3))
    def answer(self, index: int, at_once: int) -> None:
        answered = [
            self.at_work.pop(index % len(self.at_work)) for _ in range(min(at_once, len(self.at_work)))
        ]
        self.one.at_work = None
        self.one.ended(sum(answered), len(answered))

    @precondition(lambda self: self.at_work)
    @rule(size=st.integers(0, 30))
    def grow(self, size: int) -> None:
        self.at_work[0] += size
        self.one.began(size, 0)

    @precondition(lambda self: self.at_work)
    @rule()
    def shrink(self) -> None:
        size, self.at_work[0] = self.at_work[0], 0
        self.one.ended(size, 0)

    @rule(size=st.integers(0, 120), looks=st.booleans())
    def others_take(self, size: int, looks: bool) -> None:
        self.others += size
        self.peer.memory.take(size)
        if looks:
            self.one.look()

    @rule()
    def others_give(self) -> None:
        self.peer.memory.give(self.others)
        self.others = 0
        self.peer.memory.serve()

    @rule(full=st.booleans())
    def fill_outbox(self, full: bool) -> None:
        self.one.outbox_is_full = full
        if full:
            self.one.pause()
        else:
            self.one.resume_if_possible()

    @rule(has_exceeded=st.booleans())
    def throttle(self, has_exceeded: bool) -> None:
        if has_exceeded:
            self.one.throttle()
        else:
            self.one.end_throttle()

    @rule(awaits=st.booleans())
    def announce_a_frame(self, awaits: bool) -> None:
        self.one.awaits_memory = awaits
        if awaits:
            self.one.pause()
        else:
            self.one.resume_if_possible()

    @rule(again=st.booleans())
    def take_long(self, again: bool) -> None:
        self.leaves_for_later = again
        self.one.await_turn()

    @rule()
    def have_turn(self) -> None:
        self.peer.turns.have()

    @precondition(lambda self: not self.is_ended)
    @rule(waits=st.booleans(), likely=st.integers(0, 9))
    def end(self, waits: bool, likely: int) -> None:
        if likely:
            return
        self.is_ended, self.finishes = True, waits
        if waits:
            self.one.finish(self.note_farewell)
        else:
            self.one.close()

    def note_farewell(self) -> None:
        assert not self.at_work
        self.farewells += 1

    @invariant()
    def accounts_are_right(self) -> None:
        own = sum(self.at_work)
        assert self.one.unanswered == len(self.at_work)
        assert self.one.unanswered_bytes == self.peer.queued_bytes == own
        assert self.peer.memory.used == own + self.others

    @invariant()
    def what_is_read_may_be_handled(self) -> None:
        if self.peer.is_read and not self.is_ended:
            one = self.one
            assert not one.is_paused
            assert not self.held
            assert not any((one.awaits_turn, one.awaits_memory, one.outbox_is_full, one.is_throttled))
            assert one.unanswered <= REQUESTS_MAX
            assert one.unanswered_bytes <= BYTES_MAX

    @invariant()
    def what_is_paused_is_resumed_by_something(self) -> None:
        one = self.one
        if one.is_paused and not self.is_ended:
            assert (
                one.at_work is not None
                or one.outbox_is_full
                or one.is_throttled
                or (one.awaits_turn and self.peer.turns.calls)
                or (one.awaits_memory and not self.held)
                or one.unanswered > REQUESTS_MAX // 2
                or one.unanswered_bytes > BYTES_MAX // 2
                or one in self.peer.memory.held
            )

    @invariant()
    def the_end_is_told_once(self) -> None:
        assert self.farewells == (self.finishes and not self.at_work)
        if self.is_ended:
            assert self.one.is_paused


Walk.TestCase.settings = settings(max_examples=at_least(100), stateful_step_count=40)
TestWalk = Walk.TestCase
