"""What Pulsar's compaction has left of a log: a ledger beside its chain.  `compacted_view.py` is for its readers.

The ledger holds moved entries (`moved_entry.py`), so these keep the offsets and positions that they had in the log.
Its last entry ends at the *horizon*, the offset up to which compaction has looked.  If compaction has kept no entry
there, a control batch marks the place.
"""

from typing import Final

from magnetar.base.errors import EntryCorrupt
from magnetar.ledger.entry import Entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.storage.store import READ_ENTRIES_MAX, EntryId, LedgerId, LedgerReader, LedgerStat, StoredEntry

_SEARCH_BYTES: Final = 256 << 10  # read at a time, where timestamps are not in order


class CompactedLedger:
    """See the module's text.  `end` is the horizon: the offset after the last one that compaction has looked at."""

    def __init__(
        self, stat: LedgerStat, environment: LedgerEnvironment, reader: LedgerReader | None = None
    ) -> None:
        self.ledger_id = stat.ledger_id
        self.entry_count = stat.entry_count
        self.size_bytes = stat.size_bytes
        self.end = stat.last_offset + 1
        self._environment = environment
        self._reader = reader

    async def read_stored(
        self, offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> tuple[LedgerId, list[StoredEntry]]:
        """As `ReadableLog.read_stored`, for an offset below `end`."""
        reader = await self._open()
        first = await reader.entry_for_offset(offset)
        stored = [] if first is None else await reader.read(first, bytes_max, entries_max)
        if not stored:
            raise EntryCorrupt(f"ledger {self.ledger_id} has lost offset {offset}")
        return self.ledger_id, stored

    async def read(self, offset: int, bytes_max: int, entries_max: int) -> list[Entry]:
        """As `ReadableLog.read`, for an offset below `end`."""
        _, stored = await self.read_stored(offset, bytes_max, entries_max)
        return list(map(self._decode, stored))

    async def last_below(self, offset: int) -> Entry | None:
        """The last entry that lies below `offset` as a whole; None if there is none."""
        reader = await self._open()
        found = await reader.entry_for_offset(offset)
        entry_id = (self.entry_count if found is None else found) - 1
        return None if entry_id < 0 else self._decode((await reader.read(EntryId(entry_id), 1))[0])

    async def at_position(self, ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
        """The first entry whose position in the log was at or after this one; None if there is none."""
        reader = await self._open()
        low, high = 0, self.entry_count
        found = None
        while low < high:
            middle = (low + high) // 2
            entry = self._decode((await reader.read(EntryId(middle), 1))[0])
            if (entry.ledger_id, entry.entry_id) < (ledger_id, entry_id):
                low = middle + 1
            else:
                high, found = middle, entry
        return found

    async def at_time(self, timestamp_ms: int, from_offset: int) -> Entry | None:
        """As `ReadableLog.entry_for_timestamp`."""
        reader = await self._open()
        newest = await reader.entry_for_timestamp(timestamp_ms)
        first = await reader.entry_for_offset(from_offset)
        if newest is None or first is None:
            return None
        entry_id = max(newest, first)
        while stored := await reader.read(entry_id, _SEARCH_BYTES):
            for one in stored:
                if one.max_timestamp_ms >= timestamp_ms:
                    return self._decode(one)
            entry_id = EntryId(stored[-1].entry_id + 1)
        return None

    async def _open(self) -> LedgerReader:
        if self._reader is None:
            self._reader = await self._environment.store.open(self.ledger_id)
        return self._reader

    def _decode(self, stored: StoredEntry) -> Entry:
        return self._environment.decode_entry(self.ledger_id, stored)
