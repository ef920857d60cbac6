"""How long work waits for the event loop, measured all the time at next to no cost.

A timer is due every 25 ms; what it is late by is how long other work held the loop at that moment.  A turn of more than
25 ms is always met by one of them, though not always by its beginning.
"""

from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.metrics import Histogram

INTERVAL_S: Final = 0.025
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopWatch:
    """Observes what timers are late by in `stalls`; `longest_s` is the most there has been."""

    def __init__(self, clock: Clock) -> None:
        self.stalls = Histogram(BOUNDS_S)
        self.longest_s = 0.0
        self._clock = clock
        self._wait()

    def _wait(self) -> None:
        self._due_s = self._clock.monotonic() + INTERVAL_S
        self._clock.call_later(INTERVAL_S, self._look)

    def _look(self) -> None:
        late_s = max(self._clock.monotonic() - self._due_s, 0.0)
        self.stalls.observe(late_s)
        self.longest_s = max(self.longest_s, late_s)
        self._wait()
