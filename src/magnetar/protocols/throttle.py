"""Holds a connection back whose client has used more than it may: nothing is read, or handled, until a time."""

from magnetar.base.clock import Clock, TimerHandle
from magnetar.protocols.backpressure import Backpressure


class Throttle:
    """Of one connection."""

    __slots__ = ("_backpressure", "_clock", "_ends_s", "_timer")

    def __init__(self, clock: Clock, backpressure: Backpressure) -> None:
        self._clock = clock
        self._backpressure = backpressure
        self._timer: TimerHandle | None = None
        self._ends_s = 0.0

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def hold(self, seconds: float) -> None:
        """From now on; a time that is over sooner than the present one changes nothing."""
        ends_s = self._clock.monotonic() + seconds
        if self._timer is not None:
            if self._ends_s >= ends_s:
                return
            self._timer.cancel()
        self._ends_s = ends_s
        self._backpressure.throttle()
        self._timer = self._clock.call_later(seconds, self._end)

    def _end(self) -> None:
        self._timer = None
        self._backpressure.end_throttle()

    def close(self) -> None:
        """The connection has gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
