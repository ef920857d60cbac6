"""What waits until the log is durable up to an offset, without an entry of its own: repeated batches, and callers that
need all that was appended so far.
"""

import asyncio

from magnetar.ledger.managed_ledger import ManagedLedger
from magnetar.storage.store import Done


class DurableWaits:
    """The waits of one log.  Its owner calls `resolve` when the log has become durable further, and `fail` when appends
    have failed.  Both only matter while there are `waiting` ones, so that an owner on the hot path can look there
    first.
    """

    __slots__ = ("_log", "waiting")

    def __init__(self, log: ManagedLedger) -> None:
        self._log = log
        self.waiting: list[tuple[int, Done]] = []

    def when_durable(self, last_offset: int, done: Done) -> None:
        """Call `done(None)` when `last_offset` is durable, which may be at once, or with the error of `fail`."""
        if last_offset < self._log.high_watermark:
            done(None)
        else:
            self.waiting.append((last_offset, done))

    def until(self, end_offset: int) -> asyncio.Future[bool]:
        """Done when everything up to `end_offset` is durable (True), or an append before it has failed (False)."""
        durable: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if not durable.done():
                durable.set_result(error is None)

        self.when_durable(end_offset - 1, done)
        return durable

    def resolve(self) -> None:
        """Call what waits for offsets that are durable now."""
        self._resolve(None)

    def fail(self, error: Exception) -> None:
        """Call all that waits with `error`."""
        self._resolve(error)

    def _resolve(self, error: Exception | None) -> None:
        waiting, self.waiting = self.waiting, []
        for last_offset, done in waiting:
            if error is not None or last_offset < self._log.high_watermark:
                done(error)
            else:
                self.waiting.append((last_offset, done))
