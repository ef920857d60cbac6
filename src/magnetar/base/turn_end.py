"""What is done once at the end of a turn of the event loop: answers that became ready in it leave in one write.

A part that reports to many waiting requests at a time, as the journal does, calls `now` when it has reported to all.
Their answers then leave at once: on a busy server the end of the turn is milliseconds away, after everything that has
come on all connections.
"""

import asyncio
from collections.abc import Callable


class TurnEnd:
    """See the module's text.  Event loop only."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when this turn ends at the latest; never at once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.now)
        self._waiting.append(callback)

    def now(self) -> None:
        """Call what waits, in order.  What waits since then is called later."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            try:
                callback()
            except Exception as failure:  # noqa: BLE001 - the others are called all the same
                context = {"message": "work at the end of a turn failed", "exception": failure}
                asyncio.get_running_loop().call_exception_handler(context)
