"""How long work waits for the event loop, measured all the time at next to no cost.

A timer is due every 25 ms; what it is late by is how long other work held the loop at that moment.  A turn of more than
25 ms is always met by one of them, though not always by its beginning.  A loop that has next to nothing to do is looked
at four times a second: forty wake-ups cost an idle server two thirds of the processor time that it takes at all.
"""

import time
from collections.abc import Callable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.metrics import Histogram

INTERVAL_S: Final = 0.025
QUIET_INTERVAL_S: Final = 0.25
QUIET_SHARE: Final = 0.02  # of a processor; a look by itself takes 0.006 of it at most
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopWatch:
    """Observes what timers are late by in `stalls`; `longest_s` is the most there has been.

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
