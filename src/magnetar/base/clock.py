"""Time, as the rest of the code sees it.

Nothing below `server/` calls `time.time()`, `loop.time()`, `loop.call_later()` or `asyncio.sleep()` for a time.  Each
part gets a `Clock`, so that a test moves time by hand and a simulation replays it.  Wall-clock instants are
milliseconds since the epoch (`now_ms`), durations and deadlines are seconds of a clock that never jumps (`monotonic`).
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed point; never goes back."""
        ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        """Run `callback(*args)` on the event loop after `delay_s` seconds, unless cancelled before."""
        ...


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    monotonic = staticmethod(time.monotonic)  # asked three times for each request: without a call in between

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback, *args)


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait for so long on this clock; for no time: give the others one turn of the event loop."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, _end, over)
    try:
        await over
    finally:
        timer.cancel()


async def wait_at_most(clock: Clock, seconds: float, work: "asyncio.Future[Any]") -> None:
    """Wait until `work` is done, for at most so long on this clock.  The work goes on, and raises nothing here."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, _end, over)
    try:
        await asyncio.wait((work, over), return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()


def _end(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)
