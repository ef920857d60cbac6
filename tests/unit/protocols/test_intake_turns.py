"""What the connections of a door receive shares the passes of the event loop."""

import asyncio
from itertools import count
from typing import Any

from magnetar.base.turns import TURN_S
from magnetar.protocols.intake import RECEIVED_S
from magnetar.wire.framing import RECEIVE_BYTES_MAX
from tests.unit.protocols.intake_world import World, framed, run, turns


def test_what_came_at_once_is_handled_a_turn_at_a_time() -> None:
    async def scenario(world: World) -> None:
        time_s = count(0, TURN_S / 3)
        world.intake.monotonic = lambda: next(time_s)
        bodies = [b"%d" % number for number in range(20)]
        world.give(b"".join(map(framed, bodies)))
        done = len(world.frames)
        assert 1 <= done <= 3
        assert not world.peer.is_read
        assert world.memory.used == sum(map(len, bodies[done:]))
        world.give(framed(b"more"))  # was on its way when reading stopped
        assert len(world.frames) == done
        while done < 21:
            await asyncio.sleep(0)
            assert done < len(world.frames) <= done + 3
            done = len(world.frames)
            assert world.memory.used == sum(map(len, [*bodies, b"more"][done:]))
        await turns()
        assert world.frames == [*bodies, b"more"]
        assert world.peer.is_read

    run(scenario)


def test_what_was_held_and_goes_on_counts_in_the_pass_in_which_it_does() -> None:
    async def scenario(world: World) -> None:
        other = World(beside=world)
        world.clock.advance(1.0)
        world.backpressure.at_work = object()
        world.give(framed(b"held"))
        assert world.frames == []
        world.when_handled = lambda: world.clock.advance(TURN_S)
        world.backpressure.at_work = None
        world.backpressure.resume_if_possible()
        assert world.frames == [b"held"]
        other.give(framed(b"next"))
        assert other.frames == []
        await turns()
        assert other.frames == [b"next"]

    run(scenario)


def test_what_was_held_and_takes_no_time_leaves_the_pass_to_others() -> None:
    async def scenario(world: World) -> None:
        other = World(beside=world)
        world.clock.advance(1.0)
        world.backpressure.at_work = object()
        world.give(framed(b"held"))
        world.backpressure.at_work = None
        world.backpressure.resume_if_possible()
        other.give(framed(b"next"))
        assert (world.frames, other.frames) == ([b"held"], [b"next"])

    run(scenario)


def test_connections_with_a_large_frame_each_share_the_passes_in_which_they_are_received() -> None:
    # Sixty of them were received in one pass, each as far as it had come.
    body = bytes(3 * RECEIVE_BYTES_MAX // 2)
    settings: Any = {"memory_bytes_max": 1 << 26, "frame_bytes_max": len(body)}

    async def scenario(first: World) -> None:
        worlds = [first, *(World(beside=first, **settings) for _ in range(19))]
        left = [memoryview(framed(body)) for _ in worlds]
        received: list[int] = []  # in each pass
        while any(left):
            received.append(0)
            for number, world in enumerate(worlds):
                while left[number] and world.peer.is_read:
                    size = min(len(world.intake.get_buffer()), len(left[number]))
                    assert size <= RECEIVE_BYTES_MAX
                    world.give(bytes(left[number][:size]))
                    left[number] = left[number][size:]
                    received[-1] += size
            await asyncio.sleep(0)
        assert [world.frames for world in worlds] == [[body]] * 20
        # What a pass may receive, and one read of each connection that was told to read on in it.
        assert max(received[1:]) * RECEIVED_S <= 2 * TURN_S + RECEIVE_BYTES_MAX * RECEIVED_S
        assert len(received) <= 20, "and hardly less"

    run(scenario, **settings)


def test_a_pass_that_is_used_up_handles_one_request_of_a_client_that_asks_little_and_none_of_others() -> None:
    # Each connection had five milliseconds of its own in each pass: a hundred made it half a second.
    async def scenario(world: World) -> None:
        heavy = World(beside=world)
        world.clock.advance(1.0)  # how long a request takes is a difference
        heavy.when_handled = lambda: world.clock.advance(TURN_S)
        world.give(framed(b"first"))
        heavy.give(framed(b"1"))
        assert heavy.frames == [b"1"], "a pass has just begun"
        world.give(framed(b"second") + framed(b"third"))
        assert world.frames == [b"first", b"second"]
        heavy.give(framed(b"2"))
        assert heavy.frames == [b"1"]
        await turns()
        assert world.frames == [b"first", b"second", b"third"]
        assert heavy.frames == [b"1", b"2"]

    run(scenario)
