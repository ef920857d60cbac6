"""Throttles a connection whose client has exceeded a quota: nothing is read or handled for some time."""

from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock, TimerHandle
from magnetar.protocols.backpressure import Backpressure

_ASK_S: Final = 1.0


class Throttle:
    """The throttle of one connection."""

    __slots__ = ("_backpressure", "_clock", "_ends_s", "_owed_s", "_timer")

    def __init__(self, clock: Clock, backpressure: Backpressure) -> None:
        self._clock = clock
        self._backpressure = backpressure
        self._timer: TimerHandle | None = None
        self._ends_s = 0.0
        self._owed_s: Callable[[], float] | None = None

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def hold(self, seconds: float, owed_s: Callable[[], float] | None = None) -> None:
        """Throttle for `seconds` from now on, unless the connection is already throttled for longer.

        It asks `owed_s` about once a second, and ends earlier if that says so, because a limit may change meanwhile.
        """
        ends_s = self._clock.monotonic() + seconds
        if self._timer is not None:
            if self._ends_s >= ends_s:
                return
            self._timer.cancel()
        self._ends_s, self._owed_s = ends_s, owed_s
        self._backpressure.throttle()
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        seconds = seconds if self._owed_s is None else min(seconds, _ASK_S)
        self._timer = self._clock.call_later(seconds, self._look)

    def _look(self) -> None:
        if self._owed_s is not None:
            left_s = min(self._ends_s - self._clock.monotonic(), self._owed_s())
            if left_s > 0:
                self._wait(left_s)
                return
        self._timer = self._owed_s = None
        self._backpressure.end_throttle()

    def close(self) -> None:
        """End the throttle, because the connection has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._owed_s = None
