"""A clock that moves only when a test moves it."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from magnetar.base.expiry_time import ExpiryTime
from magnetar.base.times import Times
from magnetar.base.upkeep import Upkeep


class FakeTimer:
    __slots__ = ("args", "callback", "cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """A `Clock` whose timers run inside `advance`, in order of their deadlines."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._sequence = itertools.count()

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> FakeTimer:
        timer = FakeTimer(callback, args)
        heapq.heappush(self._timers, (self._elapsed_s + max(delay_s, 0.0), next(self._sequence), timer))
        return timer

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does; no time passes."""
        self._start_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Move time forward and run every timer that becomes due, each at its own time."""
        end = self._elapsed_s + seconds
        while self._timers and self._timers[0][0] <= end:
            deadline, _, timer = heapq.heappop(self._timers)
            self._elapsed_s = max(self._elapsed_s, deadline)
            if not timer.cancelled:
                timer.callback(*timer.args)
        self._elapsed_s = end


class _ByTheClock(ExpiryTime):
    """It follows the clock at once, wherever that is set."""

    def now_ms(self) -> int:
        return self._clock.now_ms()


def times_by(clock: FakeClock) -> Times:
    """The times of parts that a test makes without a broker: data expires by the clock, also after a step of it."""
    return Times(clock, _ByTheClock(clock), Upkeep(clock))
