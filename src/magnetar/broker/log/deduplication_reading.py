"""Reads, piece by piece, what Pulsar's producers wrote to a log before deduplication was turned on.

It reads the log from its start up to `Deduplication.unread_end`.  The deduplication gets nothing before all of that was
read, so turning it off needs no clean-up.  Retention may delete the log's start meanwhile: the partition does not know
the sequence ids of messages that are gone.
"""

from magnetar.base.errors import LedgerNotFound
from magnetar.broker.log.deduplication import PRODUCERS_MAX, Deduplication
from magnetar.broker.log.producer_recovery import REPLAY_BYTES, Published, look
from magnetar.ledger.managed_ledger import ManagedLedger


class Reading:
    """See the module's text.  `error` is why the last attempt to read a piece has failed."""

    def __init__(self, log: ManagedLedger, deduplication: Deduplication) -> None:
        self.deduplication = deduplication
        self.error: Exception | None = None
        self._log = log
        self._offset = 0
        self._found = Deduplication()

    @property
    def offset(self) -> int:
        """The log below this offset was read, or retention has deleted it."""
        return max(self._offset, self._log.log_start)

    async def read_piece(self, now_ms: int) -> bool:
        """Read the next piece; returns True if there was none left, so that the deduplication knows all producers.

        The log does not show when producers were last connected, so all of the piece count as seen at `now_ms`.

        Raises:
            EntryCorrupt, WireError: the entry at `offset` cannot be read.
            StorageError: the log cannot be read now.
        """
        log, offset = self._log, self.offset
        durable_end = log.high_watermark
        if offset >= min(self.deduplication.unread_end, durable_end):
            self.deduplication.learn(self._found)
            return True
        try:
            ledger_id, stored = await log.read_stored(offset, REPLAY_BYTES)
        except LedgerNotFound:
            if log.log_start > offset:
                return False
            raise
        looked = await look(ledger_id, stored, offset)
        for one in looked.found:
            if isinstance(one, Published):
                self._found.add(one.view, one.last_offset, durable_end, now_ms)
        if len(self._found) > 2 * PRODUCERS_MAX:
            self._found.forget_surplus(PRODUCERS_MAX, durable_end)
        self._offset = looked.end_offset
        if looked.error is not None:
            raise looked.error
        return False
