"""A log for readers that want only the last value of each key, as far as compaction has looked.

They read what compaction has left (`compacted.py`) up to its horizon, and the log from there on.  They can read what
it has left even if the log itself no longer begins at offset 0.

A run of compaction may replace the ledger at any moment, also while a reader is in it.  The reader then continues in
the new ledger at its own offset.  It misses no key: each message that the new ledger lacks has a later one of its
key, at a higher offset.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from magnetar.base.errors import LedgerNotFound
from magnetar.ledger.compacted import CompactedLedger
from magnetar.ledger.entry import Entry
from magnetar.ledger.readable_log import ReadableLog
from magnetar.storage.store import READ_ENTRIES_MAX, EntryId, LedgerId

T = TypeVar("T")


class CompactedView:
    """See the module's text.  Its methods are those of `ReadableLog`, and raise the same errors."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log

    @property
    def log_start(self) -> int:
        return self._log.log_start if self._log.compacted is None else 0

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def last_ledger_id(self) -> LedgerId:
        return self._log.last_ledger_id

    @property
    def cleaned(self) -> int:
        """The offset below which batches may have lost some of their messages."""
        return max(self._log.cleaned, self._horizon)

    @property
    def _horizon(self) -> int:
        return 0 if self._log.compacted is None else self._log.compacted.end

    def read_cached(
        self, offset: int, bytes_max: int, end_offset: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[Entry] | None:
        if offset < max(self._horizon, self._log.log_start):
            return None
        return self._log.read_cached(offset, bytes_max, end_offset, entries_max)

    async def read(self, offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX) -> list[Entry]:
        async def below(compacted: CompactedLedger) -> list[Entry] | None:
            return await compacted.read(offset, bytes_max, entries_max) if offset < compacted.end else None

        found = await self._in_compacted(below)
        if found is not None:
            return found
        return await self._log.read(max(offset, self._log.log_start), bytes_max, entries_max)

    async def entry_at(self, offset: int) -> Entry | None:
        found = await self.read(offset, 1, 1)
        return found[0] if found else None

    async def entry_before(self, offset: int) -> Entry | None:
        if offset > self._horizon:
            found = await self._log.entry_before(offset)
            if found is not None and found.base_offset >= self._horizon:
                return found
        return await self._in_compacted(lambda compacted: compacted.last_below(offset))

    async def locate(self, ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
        found = await self._in_compacted(lambda compacted: compacted.at_position(ledger_id, entry_id))
        return await self._log.locate(ledger_id, entry_id) if found is None else found

    async def entry_for_timestamp(self, timestamp_ms: int, from_offset: int) -> Entry | None:
        found = await self._in_compacted(lambda compacted: compacted.at_time(timestamp_ms, from_offset))
        if found is not None:
            return found
        return await self._log.entry_for_timestamp(timestamp_ms, max(from_offset, self._horizon))

    async def _in_compacted(self, look: Callable[[CompactedLedger], Awaitable[T | None]]) -> T | None:
        """What `look` finds in the compacted ledger; None if there is no such ledger.  `look` is called again if
        another run of compaction has deleted the ledger meanwhile.
        """
        while (compacted := self._log.compacted) is not None:
            try:
                return await look(compacted)
            except LedgerNotFound:
                if self._log.compacted is compacted:
                    raise
        return None


LogView = ReadableLog | CompactedView
"""What a subscription reads: the log as it is, or what compaction has left of it."""


def view_of(log: ReadableLog, *, compacted: bool) -> LogView:
    """The log itself, or a `CompactedView` of it."""
    return CompactedView(log) if compacted else log
