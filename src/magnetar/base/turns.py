"""How long one pass of the event loop may take: connections with more to do go on here, one after the other.

A pass handles what has come on all connections at once.  A hundred that each use a few milliseconds would make it a
hundred times as long, and a client with one small thing to ask would wait for all of them.  So what is received in one
pass shares `TURN_S`; what does not fit waits here, and in each pass so much of it is done.  To receive counts, too: the
loop copies what it receives, and sixty connections with a large frame each are 20 ms a pass.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_S: Final = 0.002  # in one pass: of work on what has just come, and again of work on what waits here


class Turns:
    """See the module's text."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        # Of this pass, for what has just come: the outbox, or `_serve`, sets it back when the pass is over.
        self.left_s = TURN_S
        self._monotonic = monotonic
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._is_serving = False

    def spend(self, used_s: float) -> None:
        """So long was worked on what has just come."""
        self.left_s -= used_s
        if self.left_s <= 0.0:
            self._serve_soon()  # and so end this pass

    def wait(self, go_on: Callable[[], None], leads_to_s: float = 0.0) -> None:
        """Call `go_on` when all that wait already have had their turn; never at once.

        `leads_to_s`: how much work comes of the call, besides what it does itself.
        """
        self._waiting.append((go_on, leads_to_s))
        self._serve_soon()

    def _serve_soon(self) -> None:
        if not self._is_serving:
            self._is_serving = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self.left_s = TURN_S
        over_s = self._monotonic() + TURN_S
        try:
            for _ in range(len(self._waiting)):  # each once
                go_on, leads_to_s = self._waiting.popleft()
                go_on()
                over_s -= leads_to_s
                if self._monotonic() >= over_s:
                    break
        finally:
            self._is_serving = False
            if self._waiting:
                self._serve_soon()
