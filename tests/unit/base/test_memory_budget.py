"""What connections hold is bounded, and a connection that makes progress gets on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.base.memory_budget import (
    CHECK_S,
    FRAME_STALL_S,
    GROWTH_BYTES,
    HELD_STALL_S,
    STALL_S,
    WAIT_S,
    MemoryBudget,
)
from magnetar.base.turns import TURN_S
from magnetar.testing.clock import FakeClock

MIB = 1 << 20


class Peer:
    """A connection that receives or is sent to."""

    def __init__(self) -> None:
        self.filled = 0
        self.unsent = 0
        self.granted: list[int] = []
        self.reasons: list[str] = []
        self.resumed = 0
        self.is_gone = False
        self.is_closed = False
        self.paused = False

    def frame_filled(self) -> int:
        return self.filled

    def is_paused(self) -> bool:
        return self.paused

    def unsent_bytes(self) -> int:
        return self.unsent

    def memory_granted(self, cost: int) -> None:
        self.granted.append(cost)

    def has_hung_up(self) -> bool:
        return self.is_gone

    def hang_up(self) -> None:
        self.is_closed = True

    def resume_if_possible(self) -> None:
        self.resumed += 1

    def cut_off(self, reason: str) -> None:
        self.reasons.append(reason)


def run(scenario: Callable[[MemoryBudget, FakeClock], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = FakeClock()
        await scenario(MemoryBudget(64 * MIB, clock), clock)

    asyncio.run(main())


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_large_frames_leave_room_and_small_ones_find_it() -> None:
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        large = [Peer() for _ in range(20)]
        admitted = [memory.begin_frame(one, 20 * MIB) > 0 for one in large]
        assert admitted.count(True) == 2
        assert memory.used == 40 * MIB
        assert memory.begin_frame(Peer(), 1 * MIB), "an ordinary request is received all the same"
        memory.end_frame(large[0])
        memory.give_frame(20 * MIB)
        await turn()
        assert [one.granted for one in large[2:4]] == [[20 * MIB], []], "in the order they came"
        memory.end_frame(large[3])  # it went away while it waited
        for _round in range(2):
            memory.give_frame(20 * MIB)
        await turn()
        assert [len(one.granted) for one in large[2:7]] == [1, 0, 1, 1, 0]

    run(scenario)


def test_a_frame_larger_than_the_budget_is_received_alone() -> None:
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        one, other = Peer(), Peer()
        assert memory.begin_frame(one, 100 * MIB)
        assert not memory.begin_frame(other, 100 * MIB)
        memory.end_frame(one)
        memory.give_frame(memory.cost(100 * MIB))
        await turn()
        assert other.granted == [memory.cost(100 * MIB)]

    run(scenario)


def test_responses_grow_smaller_as_memory_does() -> None:
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        sizes = []
        for _round in range(30):
            sizes.append(memory.response_bytes_max())
            peer = Peer()
            memory.sending(peer, sizes[-1])
        assert sizes[0] == 12 * MIB
        assert sizes == sorted(sizes, reverse=True)
        assert memory.used <= 48 * MIB
        assert not memory.is_over
        assert memory.begin_frame(Peer(), MIB), "and a request still finds room"

    run(scenario)


def test_what_sockets_have_taken_is_found_out_when_a_session_needs_room() -> None:
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        senders = [Peer() for _ in range(4)]
        for one in senders:
            one.unsent = 15 * MIB
            memory.sending(one, one.unsent)
        assert not memory.begin_frame(Peer(), 8 * MIB)
        for one in senders:
            one.unsent = 0
        assert memory.begin_frame(Peer(), 8 * MIB)
        assert memory.used == 8 * MIB

    run(scenario)


def test_past_the_limit_sessions_are_held_until_an_eighth_is_free() -> None:
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        session = Peer()
        memory.take(65 * MIB)
        assert memory.is_over
        memory.hold(session)
        memory.give(4 * MIB)
        await turn()
        assert session.resumed < 1
        memory.give(5 * MIB)
        await turn()
        assert session.resumed == 1

    run(scenario)


def test_requests_that_were_received_are_handled_even_past_the_limit() -> None:
    # They alone could hold all of it: no session would make room.
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        memory.take_frame(65 * MIB)
        assert not memory.is_over
        memory.take(17 * MIB)
        assert memory.is_over

    run(scenario)


def test_a_frame_that_does_not_grow_is_cut_off_sooner_when_memory_is_short() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        lazy, busy, waiting = Peer(), Peer(), Peer()
        assert memory.begin_frame(lazy, 20 * MIB)
        assert memory.begin_frame(busy, 20 * MIB)
        for _ in range(int(STALL_S) + 2):
            clock.advance(1)
        assert not lazy.reasons, "no other needs its memory"
        assert not memory.begin_frame(waiting, 20 * MIB)
        for _ in range(int(STALL_S) + 2):
            busy.filled += MIB
            clock.advance(1)
        assert lazy.reasons
        assert not busy.reasons
        memory.end_frame(lazy)
        memory.give_frame(20 * MIB)
        await turn()
        assert waiting.granted
        for _ in range(int(FRAME_STALL_S) + 2):
            busy.filled += 1
            clock.advance(1)
        assert waiting.reasons, "in the end even with memory to spare"
        assert not busy.reasons

    run(scenario)


def test_a_frame_that_we_do_not_read_is_not_blamed_for_not_growing() -> None:
    """A client with a long fetch under way may have begun to send its next large request."""

    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        polite = Peer()
        polite.paused = True
        assert memory.begin_frame(polite, 20 * MIB)
        for _ in range(int(FRAME_STALL_S) * 3):
            clock.advance(1)
        assert not polite.reasons
        polite.paused = False
        for _ in range(int(FRAME_STALL_S) - 2):
            clock.advance(1)
        assert not polite.reasons, "its time begins when it is read again"
        polite.paused = True
        assert not memory.begin_frame(Peer(), 40 * MIB)
        for _ in range(int(STALL_S) + 2):
            clock.advance(1)
        assert polite.reasons, "others need its memory"

    run(scenario)


def test_a_crumb_now_and_then_is_no_progress_when_memory_is_short() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        trickle = Peer()
        assert memory.begin_frame(trickle, 40 * MIB)
        assert not memory.begin_frame(Peer(), 40 * MIB)
        for _ in range(int(STALL_S) + 2):
            trickle.filled += 100
            clock.advance(1)
        assert trickle.reasons

    run(scenario)


def test_a_socket_that_takes_nothing_is_cut_off_when_memory_is_short() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        stuck, slow = Peer(), Peer()
        for one, size in ((stuck, 30 * MIB), (slow, 10 * MIB)):
            one.unsent = size
            memory.sending(one, size)
        for _ in range(2 * int(STALL_S)):
            slow.unsent -= 7000
            clock.advance(1)
        assert not stuck.reasons, "memory is not short"
        memory.take(10 * MIB)
        for _ in range(int(STALL_S) + 2):
            slow.unsent -= 7000
            clock.advance(1)
        assert stuck.reasons
        assert not slow.reasons
        memory.sent(stuck)
        memory.sent(slow)
        memory.sent(slow)
        assert memory.used == 10 * MIB

    run(scenario)


def test_while_sessions_are_held_those_that_take_nothing_and_have_most_are_cut_off_soon() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        small, large, middling, slow = Peer(), Peer(), Peer(), Peer()
        for one, mib in ((small, 1), (large, 12), (middling, 6), (slow, 20)):
            one.unsent = mib * MIB
            memory.sending(one, one.unsent)
        memory.take(24 * MIB)
        clock.advance(CHECK_S + HELD_STALL_S)
        assert memory.is_short
        assert not large.reasons, "no session is held"
        memory.take(2 * MIB)
        memory.hold(session := Peer())
        slow.unsent -= GROWTH_BYTES
        clock.advance(CHECK_S)
        # 65 MiB, of which 56 may stay: the one of 12 is enough, and 20 are taken, if slowly.
        assert large.reasons == ["what it asked for is not taken, for 3 s"]
        assert not small.reasons + middling.reasons + slow.reasons
        memory.sent(large)
        await turn()
        assert session.resumed == 1
        clock.advance(CHECK_S)
        assert not small.reasons + middling.reasons + slow.reasons

    run(scenario)


def test_a_socket_that_has_taken_something_is_not_in_the_way_of_those_that_are_held() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        slow = Peer()
        slow.unsent = 65 * MIB
        memory.sending(slow, slow.unsent)
        memory.hold(Peer())
        for _ in range(20):
            slow.unsent -= GROWTH_BYTES
            clock.advance(CHECK_S)
        assert not slow.reasons
        slow.unsent -= GROWTH_BYTES - 1
        clock.advance(CHECK_S)
        assert slow.reasons, "a crumb now and then is not enough"

    run(scenario)


def test_what_can_wait_is_told_of_room_a_few_milliseconds_in_each_turn_of_the_loop() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        lazy, told = Peer(), []

        def tell(number: int) -> Callable[[], None]:
            def callback() -> None:
                told.append(number)
                clock.advance(TURN_S)

            return callback

        lazy.unsent = 2 * MIB + 1
        memory.sending(lazy, lazy.unsent)
        memory.take(54 * MIB)
        assert memory.is_crowded
        waiting = [tell(number) for number in range(3)]
        for callback in waiting:
            memory.tell_when_room(callback)
        memory.tell_no_more(waiting[2])
        memory.take(1)
        memory.give(1)
        await turn()
        assert not told
        memory.give(1)
        assert not memory.is_crowded
        await asyncio.sleep(0)
        assert len(told) == 1
        await turn()
        assert sorted(told) == [0, 1], "each once"

    run(scenario)


def test_while_anything_waits_for_room_those_that_take_nothing_are_cut_off_soon() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        lazy = Peer()
        lazy.unsent = 57 * MIB
        memory.sending(lazy, lazy.unsent)
        memory.tell_when_room(lambda: None)
        clock.advance(CHECK_S)
        assert lazy.reasons == ["what it asked for is not taken, for 1 s"]

    run(scenario)


def test_large_batches_wait_while_answers_fill_what_others_have_left() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        lazy = Peer()
        lazy.unsent = 1 * MIB
        memory.sending(lazy, lazy.unsent)
        memory.take_answer(1 * MIB)
        memory.take(54 * MIB)
        assert not memory.refuses(4 * MIB), "others have filled it"
        memory.take_answer(1)
        assert memory.refuses(4 * MIB)
        memory.give_answer(1)
        lazy.unsent += 1
        memory.sending(lazy, lazy.unsent)
        assert memory.refuses(4 * MIB)
        assert not memory.refuses(64 << 10), "what is small is sent"
        assert memory.refuses((64 << 10) + 1)
        memory.give(2 * MIB + 1)
        assert not memory.refuses(2 * MIB)
        assert memory.refuses(2 * MIB + 1)
        memory.give(2 * MIB)
        assert not memory.refuses(1 << 40), "it counts a sixteenth at most, or it would never be sent"
        memory.sent(lazy)
        memory.take(56 * MIB - memory.used)
        assert not memory.refuses(4 * MIB), "they have been taken"

    run(scenario)


def test_while_batches_wait_those_that_take_nothing_and_have_most_are_cut_off_soon() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        small, large, middling, slow = Peer(), Peer(), Peer(), Peer()
        for one, mib in ((small, 1), (large, 8), (middling, 6), (slow, 20)):
            one.unsent = mib * MIB
            memory.sending(one, one.unsent)
        memory.take(20 * MIB)
        clock.advance(CHECK_S + HELD_STALL_S)
        assert not large.reasons, "no batch waits"
        assert memory.refuses(2 * MIB)
        slow.unsent -= GROWTH_BYTES
        clock.advance(CHECK_S)
        # 55 MiB, of which 48 may stay: the one of 8 is enough, and 20 are taken, if slowly.
        assert large.reasons == ["what it asked for is not taken, for 3 s"]
        memory.sent(large)
        memory.take(8 * MIB)
        clock.advance(CHECK_S)
        assert not small.reasons + middling.reasons + slow.reasons, "no batch waits any more"

    run(scenario)


def test_sessions_that_were_held_go_on_a_few_milliseconds_in_each_turn_of_the_loop() -> None:
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        class Busy(Peer):
            def resume_if_possible(self) -> None:
                super().resume_if_possible()
                clock.advance(TURN_S * 0.6)

        held = [Busy() for _ in range(20)]
        memory.take(65 * MIB)
        for one in held:
            memory.hold(one)
        memory.give(65 * MIB)
        resumed = 0
        while resumed < len(held):
            await asyncio.sleep(0)
            before, resumed = resumed, sum(one.resumed for one in held)
            assert 0 < resumed - before <= 2
        assert {one.resumed for one in held} == {1}
        assert memory.held_count == 0

    run(scenario)


def test_while_frames_wait_little_is_to_be_received_and_clients_that_hang_up_are_missed() -> None:
    # Thousands that had announced a frame and gone again were kept, each with 64 KiB of what it had sent.
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        first, second, gone = Peer(), Peer(), Peer()
        assert memory.begin_frame(first, 30 * MIB)
        assert not memory.frames_waiting
        assert not memory.begin_frame(second, 30 * MIB)
        assert not memory.begin_frame(gone, 30 * MIB)
        assert memory.frames_waiting
        first.is_gone = gone.is_gone = True
        clock.advance(CHECK_S)
        assert gone.is_closed
        assert not first.is_closed, "one that is read from is missed by its socket"
        assert not second.is_closed
        memory.end_frame(gone)
        memory.end_frame(first)
        memory.give_frame(30 * MIB)
        await turn()
        assert second.granted == [30 * MIB]
        assert not memory.frames_waiting

    run(scenario)


def test_when_those_that_wait_have_gone_as_much_is_received_as_before() -> None:
    async def scenario(memory: MemoryBudget, _: FakeClock) -> None:
        first, second = Peer(), Peer()
        assert memory.begin_frame(first, 30 * MIB)
        assert not memory.begin_frame(second, 30 * MIB)
        memory.end_frame(second)
        assert not memory.frames_waiting

    run(scenario)


def test_frames_that_have_waited_are_let_in_over_several_turns_of_the_loop() -> None:
    # Each takes memory and handles what came behind it: dozens at once were 8 ms.
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        class Slow(Peer):
            def memory_granted(self, cost: int) -> None:
                super().memory_granted(cost)
                clock.advance(TURN_S)

        memory.take(60 * MIB)
        waiting = [Slow() for _ in range(3)]
        assert not any(memory.begin_frame(one, 5 * MIB) for one in waiting)
        memory.give(60 * MIB)
        for count in (1, 2, 3):
            await asyncio.sleep(0)
            assert sum(bool(one.granted) for one in waiting) == count

    run(scenario)


def test_no_frame_waits_for_longer_than_its_client_does(caplog: pytest.LogCaptureFixture) -> None:
    # One that has sent more than the sockets hold may have gone unseen: its end is behind what it has sent.
    async def scenario(memory: MemoryBudget, clock: FakeClock) -> None:
        memory.take(60 * MIB)
        early, late = [Peer() for _ in range(5)], Peer()
        assert not any(memory.begin_frame(one, 5 * MIB) for one in early)
        clock.advance(WAIT_S - CHECK_S)
        assert not memory.begin_frame(late, 5 * MIB)
        assert not any(one.is_closed for one in early)
        clock.advance(2 * CHECK_S)
        assert all(one.is_closed for one in early)
        assert not late.is_closed
        assert memory.cut_off_count == 5

    run(scenario)
    assert len(caplog.messages) == 1, "one line, however many they are"
