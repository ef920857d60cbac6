"""What an intake does for others: memory that a client no longer waits for, short reads, and passes that end."""

from typing import Any

from magnetar.base.turns import TURN_S
from magnetar.protocols.intake import RECEIVED_S
from magnetar.wire.framing import RECEIVE_BYTES_MAX, SCRATCH_BYTES, SHORT_RECEIVE_BYTES, Frame
from tests.unit.protocols.intake_world import FRAME_BYTES_MAX, KIB, LARGE, World, framed, run, turns


def test_a_client_that_has_gone_waits_for_memory_no_longer() -> None:
    async def scenario(world: World) -> None:
        world.memory.take(world.memory.bytes_max)
        world.give(framed(bytes(LARGE))[:50])
        world.memory_clock.advance(2.0)
        assert world.shares()["waiting"] == 1
        assert not world.peer.is_closed
        world.peer.is_gone = True
        world.memory_clock.advance(2.0)
        assert world.shares()["waiting"] == 0
        assert world.peer.is_closed

    run(scenario)


def test_while_frames_wait_for_memory_only_the_ones_that_have_it_are_received_at_full_speed() -> None:
    async def scenario(world: World) -> None:
        receiving, waiting = World(beside=world), World(beside=world)
        receiving.give(framed(bytes(150 * KIB))[:50])
        assert len(world.intake.get_buffer()) == SCRATCH_BYTES
        world.memory.take(world.memory.bytes_max - world.memory.used)
        waiting.give(framed(bytes(LARGE))[:50])
        assert len(world.intake.get_buffer()) == SHORT_RECEIVE_BYTES
        assert len(receiving.intake.get_buffer()) == 150 * KIB - 46

    run(scenario)


def test_before_a_client_is_let_in_only_small_frames_come_and_then_as_large_ones_as_it_may_send() -> None:
    asked: list[int] = []

    def admits_large(size: int) -> bool:
        asked.append(size)
        return False

    async def scenario(world: World) -> None:
        others: list[bytes] = []

        def other(frame: Frame) -> None:
            others.append(bytes(frame.data))

        world.give(framed(b"login"))
        assert world.frames == [b"login"]
        stranger = World(beside=world, admits_large=admits_large)
        stranger.give(framed(bytes(LARGE))[:50])
        assert stranger.reasons == [f"a frame of {LARGE} bytes before the client is known"]
        world.intake.let_in(other, 2 * FRAME_BYTES_MAX)
        larger = bytes(FRAME_BYTES_MAX + 1)
        world.give(framed(larger) + framed(b"small"))
        assert others == [larger, b"small"]
        assert world.frames == [b"login"]
        assert world.reasons == []

    run(scenario, admits_large=admits_large)
    assert asked == [LARGE]


def test_a_pass_that_has_ended_leaves_the_next_one_all_its_time() -> None:
    async def scenario(world: World) -> None:
        world.clock.advance(1.0)
        world.when_handled = lambda: world.clock.advance(TURN_S * 0.6)
        world.give(framed(b"1"))
        world.traffic.turns.end_pass()
        world.give(framed(b"2") + framed(b"3"))
        assert world.frames == [b"1", b"2", b"3"]

    run(scenario)


def test_a_pass_that_was_used_up_by_one_request_ends_when_the_loop_has_turned() -> None:
    async def scenario(world: World) -> None:
        world.clock.advance(1.0)
        world.when_handled = lambda: world.clock.advance(2 * TURN_S)
        world.give(framed(b"1"))
        await turns()
        world.give(framed(b"2"))
        assert world.frames == [b"1", b"2"], "it need not wait for another turn"

    run(scenario)


def test_a_pass_in_which_a_part_of_a_large_frame_came_ends_as_others_do() -> None:
    body = bytes(3 * RECEIVE_BYTES_MAX)
    settings: Any = {"memory_bytes_max": 1 << 26, "frame_bytes_max": len(body)}

    async def scenario(world: World) -> None:
        part = int(TURN_S * 0.6 / RECEIVED_S)
        world.give(framed(body)[:50])
        world.traffic.turns.end_pass()
        began_s = world.traffic.turns.left_s
        while part > 0:
            size = min(part, RECEIVE_BYTES_MAX, len(world.intake.get_buffer()))
            world.intake.received(size)
            part -= size
        assert world.traffic.turns.left_s < began_s / 2
        world.traffic.turns.end_pass()
        assert world.traffic.turns.left_s == TURN_S

    run(scenario, **settings)
