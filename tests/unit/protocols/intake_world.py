"""A session that notes its frames, and what it stands on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.base.arena import Arena
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.turn_end import TurnEnd
from magnetar.protocols.intake import FramedTraffic, Intake, Limits
from magnetar.testing.clock import FakeClock
from magnetar.wire.framing import SMALL_FRAME_BYTES_MAX, Frame
from tests.unit.protocols.doubles import Connection

KIB = 1 << 10
FRAME_BYTES_MAX = 200 * KIB
LARGE = SMALL_FRAME_BYTES_MAX + 1


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class World:
    """A session that notes frames; each of them takes as long as the test says."""

    def __init__(
        self,
        memory_bytes_max: int = 1 << 20,
        ran_short: Callable[[], None] | None = None,
        beside: "World | None" = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        admits_large: Callable[[int], bool] | None = None,
    ) -> None:
        self.clock: FakeClock = FakeClock() if beside is None else beside.clock
        self.memory_clock = FakeClock()
        self.memory = MemoryBudget(memory_bytes_max, self.memory_clock)
        self.traffic = FramedTraffic(self.memory, self.clock, Arena(1 << 20), TurnEnd())
        if beside is not None:
            self.memory, self.traffic = beside.memory, beside.traffic
        self.peer = Connection()
        self.frames: list[bytes] = []
        self.owned: list[bool] = []
        self.reasons: list[str] = []
        self.when_handled: Callable[[], None] = lambda: None
        limits = Limits(frame_bytes_max, 1_000, 1 << 20)
        self.intake = Intake(
            self.traffic, self.peer, limits, self.handle, self.reasons.append, ran_short, admits_large
        )
        self.backpressure = self.intake.backpressure

    def handle(self, frame: Frame) -> None:
        self.frames.append(bytes(frame.data))
        self.owned.append(frame.owned)
        assert not (frame.owned and frame.data.readonly), (
            "Kafka's door writes offsets into a frame that it may keep"
        )
        self.when_handled()

    def give(self, data: bytes, step: int = 1 << 20) -> None:
        view = memoryview(data)
        while view:
            buffer = self.intake.get_buffer()
            size = min(len(buffer), step, len(view))
            buffer[:size] = view[:size]
            self.intake.received(size)
            view = view[size:]

    def shares(self) -> dict[str, int]:
        return dict(self.memory.shares())


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], *args: Any, **settings: Any) -> None:
    async def main() -> None:
        await scenario(World(*args, **settings))

    asyncio.run(main())


async def turns(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)
