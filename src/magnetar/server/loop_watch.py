"""Measures how long work waits for the event loop, all the time and at little cost.

A timer is due every 25 ms.  Its delay is the time for which other work held the loop at that moment.  Each turn of
the loop that takes more than 25 ms delays a timer, but the delay may be shorter than the turn.  If the loop has very
little to do, the timer is due only four times a second.  Forty wake-ups a second would take two thirds of the processor
time of an idle server.
"""

import time
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.metrics import Histogram

INTERVAL_S: Final = 0.025
QUIET_INTERVAL_S: Final = 0.25
QUIET_SHARE: Final = 0.02  # of a processor: a loop is idle below it; the timer itself takes at most 0.006
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopWatch:
    """Observes the timers' delays, in seconds, in `stalls`; `longest_s` is the longest so far.

    `worked_s`: the processor time of the loop's thread so far, in seconds.
    """

    def __init__(self, clock: Clock, worked_s: Callable[[], float] = time.thread_time) -> None:
        self.stalls = Histogram(BOUNDS_S)
        self.longest_s = 0.0
        self._clock = clock
        self._worked_s = worked_s
        self._wait(INTERVAL_S)

    def _wait(self, interval_s: float) -> None:
        self._due_s = self._clock.monotonic() + interval_s
        self._quiet_until_s = self._worked_s() + interval_s * QUIET_SHARE
        self._clock.call_later(interval_s, self._look)

    def _look(self) -> None:
        late_s = max(self._clock.monotonic() - self._due_s, 0.0)
        self.stalls.observe(late_s)
        self.longest_s = max(self.longest_s, late_s)
        self._wait(QUIET_INTERVAL_S if self._worked_s() < self._quiet_until_s else INTERVAL_S)
