"""Calls a dispatcher's `tick` when it wants that.

A dispatcher wants it at a time of the wall clock, and timers do not jump with that clock.  After a step forward, or
after a machine was suspended, a late tick would wait for all the time that was skipped.  So no timer is longer than
`LOOK_S_MAX`.
"""

from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock, TimerHandle

LOOK_S_MAX: Final = 10.0


class Ticker:
    """One timer, for the earliest time that was asked for."""

    __slots__ = ("_at_ms", "_clock", "_tick", "_timer")

    def __init__(self, clock: Clock, tick: Callable[[], None]) -> None:
        self._clock = clock
        self._tick = tick
        self._timer: TimerHandle | None = None
        self._at_ms = 0

    def set(self, at_ms: int | None) -> None:
        """Call at this time, in milliseconds since the epoch, or before."""
        if at_ms is None or (self._timer is not None and self._at_ms <= at_ms):
            return
        self.stop()
        self._at_ms = at_ms
        wait_s = max(0, at_ms - self._clock.now_ms()) / 1000
        self._timer = self._clock.call_later(min(wait_s, LOOK_S_MAX), self._call)

    def _call(self) -> None:
        self._timer = None
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
