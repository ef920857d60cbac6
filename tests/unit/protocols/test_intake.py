"""Frames reach their session in order, each in its turn, whatever they have to wait for; what waits is counted."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocols.intake import OWN_COPY_BYTES_MIN, Intake
from magnetar.wire.framing import FRAMES_AT_ONCE, SMALL_FRAME_BYTES_MAX
from tests.unit.protocols.intake_world import FRAME_BYTES_MAX, KIB, LARGE, World, framed, run, turns


@given(
    st.lists(st.sampled_from([1, 5, 300, LARGE, 70 * KIB]), max_size=6),
    st.sampled_from([1_000, 16 * KIB, 1 << 20]),
)
def test_frames_come_out_as_they_went_in_however_they_were_cut(sizes: list[int], step: int) -> None:
    async def scenario(world: World) -> None:
        bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
        data = b"".join(map(framed, bodies))
        world.give(data, step)
        assert world.frames == bodies
        assert world.traffic.received_bytes == len(data)
        assert world.memory.used == 0
        assert world.shares()["receiving"] == 0
        assert world.peer.is_read
        world.intake.close()
        assert world.memory.used == 0

    run(scenario)


def test_a_small_frame_is_received_however_short_memory_is() -> None:
    async def scenario(world: World) -> None:
        world.memory.take(world.memory.bytes_max)
        for size, waiting in ((SMALL_FRAME_BYTES_MAX, 0), (LARGE, 1)):
            world.give(framed(bytes(size))[:50])
            assert world.peer.is_read != waiting
            assert world.shares()["waiting"] == waiting
            world.give(framed(bytes(size))[50:])
            assert world.frames == [bytes(SMALL_FRAME_BYTES_MAX)]

    run(scenario)


def test_a_frame_that_is_being_received_counts_from_its_announcement_on() -> None:
    async def scenario(world: World) -> None:
        for size, receiving in ((100, 0), (LARGE, 1)):
            world.give(framed(bytes(size))[:50])
            assert world.memory.used == size
            assert world.shares()["receiving"] == receiving
            assert world.intake.frame_filled() == 46
            world.give(framed(bytes(size))[50:])
            assert world.memory.used == 0
            assert world.shares()["receiving"] == 0
        assert world.owned == [True, True]
        world.give(framed(b"x"))
        assert world.owned == [True, True, False]

    run(scenario)


def test_what_is_held_stays_as_it_is_and_is_to_be_copied_by_who_keeps_it() -> None:
    async def scenario(world: World) -> None:
        world.backpressure.at_work = world
        world.give(framed(b"held") + framed(b"too"))
        world.intake.get_buffer()[:20] = bytes(20)
        world.backpressure.at_work = None
        world.backpressure.resume_if_possible()
        assert world.frames == [b"held", b"too"]
        assert world.owned == [False, False], "they share their memory"

    run(scenario)


def test_large_frames_that_are_held_are_copied_once_and_handled_between_the_small_ones_as_they_came() -> None:
    async def scenario(world: World) -> None:
        large, larger = b"l" * OWN_COPY_BYTES_MIN, b"r" * (OWN_COPY_BYTES_MIN + 1)
        almost = b"a" * (OWN_COPY_BYTES_MIN - 1)
        sent = [b"one", large, b"two", larger, almost]
        world.backpressure.at_work = world
        world.give(b"".join(map(framed, sent)))
        world.intake.get_buffer()[:20_000] = bytes(20_000)
        world.backpressure.at_work = None
        world.backpressure.resume_if_possible()
        assert world.frames == sent
        assert world.owned == [False, True, False, True, False]
        assert world.memory.used == 0

    run(scenario)


def test_very_many_frames_of_one_read_are_cut_a_few_at_a_time_and_counted_all_the_while() -> None:
    # A thousand small requests in one read took the loop two milliseconds before the first of them was handled.
    async def scenario(world: World) -> None:
        bodies = [bytes([number % 251]) * 9 for number in range(3 * FRAMES_AT_ONCE + 5)]
        largest = 0

        def note() -> None:
            nonlocal largest
            largest = max(largest, world.memory.used)
            assert len(world.intake._held) <= FRAMES_AT_ONCE

        world.when_handled = note
        world.backpressure.at_work = world
        world.give(b"".join(map(framed, bodies)))
        assert not world.peer.is_read
        assert world.memory.used > 9 * len(bodies), "what is not cut yet counts, too"
        world.backpressure.at_work = None
        world.backpressure.resume_if_possible()
        for _ in range(100):
            await asyncio.sleep(0)
        assert world.frames == bodies
        assert world.peer.is_read
        assert world.memory.used == 0

    run(scenario)


@pytest.mark.parametrize("handled", [0, 1, FRAMES_AT_ONCE + 1])
def test_a_connection_that_ends_before_all_is_cut_leaves_nothing_behind(handled: int) -> None:
    async def scenario(world: World) -> None:
        def end() -> None:
            if len(world.frames) == handled:
                world.intake.close()

        world.when_handled = end
        world.backpressure.at_work = world
        world.give(framed(b"123456789") * (3 * FRAMES_AT_ONCE))
        world.backpressure.at_work = None
        if handled:
            world.backpressure.resume_if_possible()
        else:
            world.intake.close()
        await turns()
        assert len(world.frames) == handled
        assert world.memory.used == 0

    run(scenario)


def test_a_large_frame_behind_very_many_small_ones_waits_for_memory_once_it_is_reached() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 100 * KIB
        world.memory.take(others)
        count = FRAMES_AT_ONCE + 3
        large = framed(bytes(150 * KIB))
        world.give(framed(b"1") * count + large[:100])
        await turns()
        assert world.frames == [b"1"] * count
        assert world.shares()["waiting"] == 1
        assert not world.peer.is_read
        world.memory.give(others)
        await turns()
        assert world.peer.is_read
        world.give(large[100:])
        assert world.frames[count:] == [bytes(150 * KIB)]
        assert world.memory.used == 0

    run(scenario)


def test_very_many_frames_behind_one_that_waited_for_memory_are_counted_while_they_are_not_cut() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 20 * KIB
        world.memory.take(others)
        large, count = framed(bytes(LARGE)), FRAMES_AT_ONCE + 10
        world.give(large[:100])
        world.give(large[100:] + framed(b"1") * count)  # was on its way when reading stopped
        world.backpressure.at_work = world
        world.memory.give(others)
        await turns()
        cut = FRAMES_AT_ONCE - 1
        assert world.memory.used == LARGE + cut + len(framed(b"1")) * (count - cut)
        world.backpressure.at_work = None
        world.backpressure.resume_if_possible()
        await turns()
        assert world.frames == [bytes(LARGE), *[b"1"] * count]
        assert world.memory.used == 0

    run(scenario)


def test_an_impossible_size_behind_very_many_frames_ends_the_connection_when_it_is_reached() -> None:
    async def scenario(world: World) -> None:
        count = FRAMES_AT_ONCE + 3
        world.give(framed(b"1") * count + bytes(4))
        for _ in range(20):
            await asyncio.sleep(0)
        assert world.frames[:FRAMES_AT_ONCE] == [b"1"] * FRAMES_AT_ONCE
        assert len(world.reasons) == 1
        world.intake.close()
        assert world.memory.used == 0

    run(scenario)


def test_behind_a_request_that_all_others_wait_for_reading_pauses_when_one_comes() -> None:
    async def scenario(world: World) -> None:
        def one_at_a_time() -> None:
            world.backpressure.at_work = world

        world.when_handled = one_at_a_time
        world.give(framed(b"1"))
        assert world.peer.is_read, "a client that waits for its answer may hang up"
        world.give(framed(b"2") + framed(b"3"))
        for number in range(1, 4):
            assert len(world.frames) == number
            assert world.peer.is_read == (number == 3), "with nothing held the next request is received"
            world.backpressure.at_work = None
            world.backpressure.resume_if_possible()
        assert world.frames == [b"1", b"2", b"3"]
        assert world.peer.is_read
        assert not world.traffic.turns._waiting

    run(scenario)


def test_a_limit_that_is_reached_in_the_middle_holds_the_rest() -> None:
    async def scenario(world: World) -> None:
        world.when_handled = lambda: world.backpressure.began(400 * KIB)
        world.give(framed(b"1") + framed(b"2") + framed(b"3") + framed(b"4"))
        assert world.frames == [b"1", b"2", b"3"]
        assert not world.peer.is_read
        world.backpressure.ended(800 * KIB, 2)
        assert world.frames == [b"1", b"2", b"3", b"4"]

    run(scenario, 1 << 30)


@pytest.mark.parametrize("holds_all", [False, True])
def test_while_all_connections_hold_too_much_frames_wait_where_every_one_costs_memory(
    holds_all: bool,
) -> None:
    async def scenario(world: World) -> None:
        world.memory.take(world.memory.bytes_max + 1)
        world.give(framed(b"1")[:3])
        assert world.peer.is_read
        world.give(framed(b"1")[3:])
        assert world.frames == ([] if holds_all else [b"1"])
        assert world.intake.is_paused() == holds_all
        world.memory.give(world.memory.bytes_max + 1)
        await turns()
        assert world.frames == [b"1"]
        assert world.peer.is_read

    run(scenario, ran_short=(lambda: None) if holds_all else None)


def test_frames_that_fill_the_memory_by_themselves_are_handled_when_all_else_has_gone() -> None:
    # They had waited for an eighth of it to be free, which only they could give back.
    sizes = [384 * KIB, 300 * KIB, 85 * KIB, 60 * KIB, 45 * KIB, 35 * KIB]

    async def scenario(first: World) -> None:
        settings: Any = {"ran_short": lambda: None, "beside": first, "frame_bytes_max": sizes[0]}
        worlds = [first, *(World(**settings) for _ in sizes[1:])]
        busy = World(**settings)
        for world, size in zip(worlds, sizes, strict=True):
            world.give(framed(bytes(size))[:100])
        busy.backpressure.began(300 * KIB)
        for world, size in zip(worlds, sizes, strict=True):
            world.give(framed(bytes(size))[100:])
        await turns()
        assert [len(world.frames) for world in worlds] == [0] * len(worlds)
        busy.backpressure.ended(300 * KIB)
        await turns(20)
        assert [len(world.frames) for world in worlds] == [1] * len(worlds)
        assert first.memory.used == 0

    run(scenario, ran_short=lambda: None, frame_bytes_max=sizes[0])


def test_frames_are_handled_while_only_that_makes_room() -> None:
    async def scenario(world: World) -> None:
        world.memory.take_frame(world.memory.bytes_max + 1)
        world.give(framed(b"1"))
        assert world.frames == [b"1"]
        assert world.peer.is_read

    run(scenario, ran_short=lambda: None)


@pytest.mark.parametrize("size", [0, FRAME_BYTES_MAX + 1])
def test_a_frame_of_impossible_size_ends_the_connection(size: int) -> None:
    async def scenario(world: World) -> None:
        world.give(size.to_bytes(4, "big"))
        [reason] = world.reasons
        assert f"a frame of {size} bytes" in reason

    run(scenario)


def test_a_large_frame_waits_for_memory_and_what_came_before_it_does_not() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 100 * KIB
        world.memory.take(others)
        large = framed(bytes(150 * KIB))
        world.give(framed(b"before") + large[:1_000])
        assert world.frames == [b"before"]
        assert not world.peer.is_read
        assert world.shares()["waiting"] == 1
        world.give(large[1_000:1_500])  # was on its way when reading stopped
        world.backpressure.resume_if_possible()
        assert not world.peer.is_read
        world.memory.give(others)
        await turns()
        assert world.peer.is_read
        assert world.memory.used == 150 * KIB
        assert world.intake.frame_filled() == 1_496
        world.give(large[1_500:] + framed(b"behind"))
        assert world.frames == [b"before", bytes(150 * KIB), b"behind"]
        assert world.memory.used == 0
        assert world.shares()["receiving"] == 0
        world.intake.close()
        assert world.memory.used == 0

    run(scenario)


def test_a_frame_that_was_complete_when_it_got_its_memory_is_handled_then_with_those_behind_it() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 20 * KIB
        world.memory.take(others)
        large = framed(bytes(LARGE))
        data = large + framed(b"behind") + framed(b"last")[:5]
        world.give(data[:100])
        world.give(data[100:])
        assert not world.frames
        world.memory.give(others)
        await turns()
        assert world.frames == [bytes(LARGE), b"behind"]
        assert world.memory.used == 4, "the last one is being received"
        assert world.peer.is_read
        world.give(b"ast")
        assert world.frames[-1] == b"last"
        assert world.memory.used == 0
        assert world.shares()["receiving"] == 0

    run(scenario)


def test_the_frame_behind_one_that_waited_is_received_when_there_is_room_for_both() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 20 * KIB
        world.memory.take(others)
        large = framed(bytes(LARGE))
        world.give(large[:100])
        world.give(large[100:] + large[:100])
        world.memory.give(others)
        await turns()
        assert world.frames == [bytes(LARGE)]
        assert world.shares()["receiving"] == 1
        assert world.intake.frame_filled() == 96
        world.give(large[100:])
        assert world.frames == [bytes(LARGE)] * 2
        assert world.memory.used == 0
        assert world.shares()["receiving"] == 0

    run(scenario)


def test_a_frame_that_got_its_memory_alone_is_received_no_longer() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 20 * KIB
        world.memory.take(others)
        world.give(framed(bytes(LARGE))[:100])
        world.give(framed(bytes(LARGE))[100:])
        world.memory.give(others)
        await turns()
        assert world.frames == [bytes(LARGE)]
        assert world.memory.used == 0
        assert world.shares()["receiving"] == 0

    run(scenario)


def test_two_large_frames_wait_one_behind_the_other() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 20 * KIB
        world.memory.take(others)
        large, larger = framed(bytes(LARGE)), framed(bytes(150 * KIB))
        world.give(large[:100])
        world.give(large[100:] + larger[:100])
        world.memory.give(100 * KIB)
        await turns()
        assert world.frames == [bytes(LARGE)]
        assert not world.peer.is_read
        assert world.shares()["waiting"] == 1
        world.memory.give(others - 100 * KIB)
        await turns()
        assert world.peer.is_read
        world.give(larger[100:])
        assert world.frames == [bytes(LARGE), bytes(150 * KIB)]
        assert world.memory.used == 0

    run(scenario)


def test_nonsense_behind_a_frame_that_waited_ends_the_connection() -> None:
    async def scenario(world: World) -> None:
        others = world.memory.bytes_max - 20 * KIB
        world.memory.take(others)
        world.give(framed(bytes(LARGE))[:100])
        world.give(framed(bytes(LARGE))[100:] + bytes(4))
        world.memory.give(others)
        await turns()
        [reason] = world.reasons
        assert "a frame of 0 bytes" in reason
        assert not world.frames
        assert not world.peer.is_read

    run(scenario)


def test_who_makes_no_progress_is_cut_off_by_name() -> None:
    async def scenario(world: World) -> None:
        world.intake.cut_off("too slow")
        assert world.reasons == ["too slow"]

    run(scenario)


def test_a_frame_that_ends_its_connection_is_the_last_one() -> None:
    async def scenario(world: World) -> None:
        world.when_handled = world.intake.close
        world.give(framed(b"1") + framed(b"2"))
        assert world.frames == [b"1"]
        assert world.memory.used == 0
        world.intake.received(0)
        assert world.frames == [b"1"]

    run(scenario)


def test_what_is_held_or_received_is_forgotten_with_its_connection() -> None:
    async def scenario(world: World) -> None:
        world.backpressure.at_work = world
        world.give(framed(b"1") + framed(b"2") + framed(bytes(LARGE))[:10])
        world.give(framed(bytes(LARGE))[10:])
        assert world.memory.used == LARGE + 2
        world.backpressure.at_work = None
        world.when_handled = world.intake.close
        world.backpressure.resume_if_possible()
        assert world.frames == [b"1"]
        assert world.memory.used == 0
        world.give(framed(b"late") + framed(b"later")[:6])
        await turns()
        assert world.frames == [b"1"]
        assert world.memory.used == 0
        assert not world.peer.is_read

    run(scenario)


def test_a_frame_that_is_being_received_is_forgotten_with_its_connection() -> None:
    async def scenario(world: World) -> None:
        world.give(framed(bytes(LARGE))[:10])
        world.intake.close()
        assert world.memory.used == 0
        assert world.shares()["receiving"] == 0

    run(scenario)


class NotLetIn(World):
    """A session that decides itself whether a large frame may come."""

    def __init__(self) -> None:
        super().__init__(admits_large=self.admits_large)

    def admits_large(self, _: int) -> bool:
        return False


def test_a_session_that_has_ended_is_freed_without_the_cycle_collector() -> None:
    async def scenario(world: World) -> None:
        for one in (world, NotLetIn()):
            one.give(framed(b"1"))
            one.intake.close()
            sessions.append(weakref.ref(one))

    sessions: list[weakref.ref[World]] = []

    def intakes() -> int:
        # By type, as `isinstance` asks a weak proxy for what it stands for, which may be gone.
        return sum(type(found) is Intake for found in gc.get_objects())

    gc.collect()
    gc.disable()
    before = intakes()
    try:
        run(scenario)
        assert [session() for session in sessions] == [None, None]
        assert intakes() == before
    finally:
        gc.enable()
