"""How long one pass of the event loop may take: connections with more work continue here, one after the other.

A pass handles what has come on all connections at once.  A hundred requests that each use a few milliseconds would make
a pass a hundred times as long.  A client with one small request would wait for all of them.  So all that is done in one
pass shares `TURN_S`; what does not fit waits here, and half of each pass is for what waits.  To receive counts, too:
the loop copies what it receives, and sixty connections with a large frame each were 20 ms a pass.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.0005  # in one pass, of all of them together


class Turns:
    """See the module's text."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.left_s = TURN_S  # of this pass; when nothing is left the rest waits for the next one
        self.has_received = False  # in this pass: set by what works on it
        self._monotonic = monotonic
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._is_serving = False

    def spend(self, used_s: float) -> None:
        """So long was worked in this pass."""
        self.left_s -= used_s
        if self.left_s <= 0.0:
            self.serve_soon()  # and so end this pass

    def end_pass(self) -> None:
        """Called, any number of times, when all that has come was looked at: the next pass begins."""
        if self.has_received:
            self.has_received = False
            self.left_s = TURN_S

    def wait(self, go_on: Callable[[], None], leads_to_s: float = 0.0) -> None:
        """Call `go_on` when all that wait already have had their turn; never at once.

        `leads_to_s`: how much work comes of the call, besides the time that it takes.
        """
        self._waiting.append((go_on, leads_to_s))
        self.serve_soon()

    def serve_soon(self) -> None:
        """End this pass when nothing of it is left (`left_s`), and serve what waits."""
        if not self._is_serving:
            self._is_serving = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self.has_received = False
        self.left_s = TURN_S
        if not self._waiting:
            self._is_serving = False
            return
        leads_to_s = 0.0
        try:
            for _ in range(len(self._waiting)):  # each once
                go_on, more_s = self._waiting.popleft()
                left_s, began_s = self.left_s, self._monotonic()
                go_on()
                self.left_s = min(self.left_s, left_s - (self._monotonic() - began_s))
                leads_to_s += more_s
                # The other half is for what has just come.
                if self.left_s - leads_to_s <= TURN_S / 2:
                    break
        finally:
            self._is_serving = False
            if self._waiting:
                self.serve_soon()
