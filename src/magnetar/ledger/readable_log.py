"""One partition's log as its readers see it: by offset, by position, by time.

Readers can read from `log_start` (inclusive) to `high_watermark` (exclusive).  The entry cache answers at once.  All
other entries are read from the ledgers, whose own indexes give the place, so this module never searches through the
log.

**Positions.**  A position is (ledger_id, entry_id), as signed numbers.  For any position that a client has kept,
`locate` finds where to continue.  A position may have no entry.  It is before the log's start, or after the last entry
of a ledger; or it is in a ledger that retention has dropped or that never got an entry.  Such a position means the
first readable entry after it.  So Pulsar's earliest (-1, -1) is the log's start, and its latest (2^63-1, 2^63-1) is
after the log's end.  Entries keep their positions and offsets when compaction moves them to another ledger
(`docs/internals/compaction.md`); entries that it removes leave gaps in both.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Final, TypeVar

from magnetar.base.errors import EntryCorrupt, LedgerNotFound
from magnetar.ledger.chain import EpochEnd, LedgerChain, LedgerInfo
from magnetar.ledger.compacted import CompactedLedger
from magnetar.ledger.entry import NO_ENTRY, NO_LEDGER, Entry
from magnetar.ledger.entry_cache import CachedRun
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.storage.store import READ_ENTRIES_MAX, EntryId, LedgerId, LedgerReader, StoredEntry

T = TypeVar("T")

_READ_HINTS_MAX: Final = 64  # sequential readers of one partition whose place is remembered
_NO_HINT: Final = (NO_LEDGER, NO_ENTRY)  # the place of a reader that is not remembered: in no ledger
_SEARCH_BYTES: Final = 256 << 10  # read at a time, where timestamps are not in order


class ReadableLog:
    """See the module's text.  `ManagedLedger` writes it.  All methods run on the event loop."""

    def __init__(self, name: str, environment: LedgerEnvironment) -> None:
        self.name = name
        self.leader_epoch = 0
        self.log_start = 0
        self.high_watermark = 0
        self._environment = environment
        self._run = CachedRun()
        self._chain = LedgerChain([])
        self._hints: OrderedDict[int, tuple[int, EntryId]] = OrderedDict()
        self.cleaned = (
            0  # the offset below which compaction has left one record of each key, as far as it may
        )
        self.compacted: CompactedLedger | None = None  # what Pulsar's compaction has left, beside the chain
        self.rewrite_count = 0  # replacements by compaction since the log was opened

    def now_ms(self) -> int:
        return self._environment.clock.now_ms()

    # --- by offset ---------------------------------------------------------------------------------------------------

    def read_cached(
        self, offset: int, bytes_max: int, end_offset: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[Entry] | None:
        """Cached entries from `offset` on and below `end_offset`, which is at most the high watermark.

        As `CachedRun.read`; None if the entry at `offset` must be read from the store.
        """
        return self._run.read(offset, bytes_max, end_offset, entries_max)

    async def read(self, offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX) -> list[Entry]:
        """Read entries from the store, from the one that holds `offset` on, or from the next one if compaction has
        left none there.  Returns the first, then as many as fit `bytes_max`, and at most `entries_max`, which is at
        most `READ_ENTRIES_MAX`.

        Raises:
            EntryCorrupt: the entry that holds `offset` fails its checksum.
            StorageError: the store cannot be read.
        """
        ledger_id, stored = await self.read_stored(offset, bytes_max, entries_max)
        return list(map(self._environment.decode_entry, repeat(ledger_id), stored))

    async def read_stored(
        self, offset: int, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> tuple[LedgerId, list[StoredEntry]]:
        """As `read`, but returns the entries in their stored form, all of one ledger, and that ledger's id."""
        if offset >= self.high_watermark:
            return NO_LEDGER, []
        return await self._despite_rewriting(partial(self._read_at, offset, bytes_max, entries_max))

    async def _read_at(
        self, offset: int, bytes_max: int, entries_max: int
    ) -> tuple[LedgerId, list[StoredEntry]]:
        info = self._chain.holder_of(offset)
        reader = await self._reader(info)
        stored_id, first = self._hints.pop(offset, _NO_HINT)
        if offset == info.first_offset:
            first = EntryId(0)  # readers of a whole log begin here, so no look-up on the disk is needed
        elif stored_id != info.stored_id:
            found = await reader.entry_for_offset(offset)
            if found is None:
                raise EntryCorrupt(f"{self.name}: ledger {info.stored_id} has lost offset {offset}")
            first = found
        stored = await reader.read(first, bytes_max, entries_max)
        if not stored:
            raise EntryCorrupt(f"{self.name}: ledger {info.stored_id} ends before offset {offset}")
        last = stored[-1]
        self._hints[last.last_offset + 1] = (info.stored_id, EntryId(last.entry_id + 1))
        if len(self._hints) > _READ_HINTS_MAX:
            self._hints.popitem(last=False)
        return info.ledger_id, stored

    async def entry_at(self, offset: int) -> Entry | None:
        """The entry that holds `offset`, or the next one if there is none; None at the end.

        Raises as `read`.
        """
        offset = max(offset, self.log_start)
        if offset >= self.high_watermark:
            return None
        cached = self.read_cached(offset, 1, self.high_watermark)
        return cached[0] if cached else (await self.read(offset, 1))[0]

    async def entry_before(self, offset: int) -> Entry | None:
        """The last readable entry that lies below `offset` as a whole; None if there is none.

        Raises as `read`.
        """
        if offset <= self.log_start:
            return None
        entry = await self.entry_at(offset - 1)
        if entry is not None and entry.last_offset < offset:
            return entry
        return await self._despite_rewriting(partial(self._stored_before, offset))

    async def _stored_before(self, offset: int) -> Entry | None:
        for info in reversed(list(self._chain)):
            if info.is_empty or info.first_offset >= offset:
                continue
            reader = await self._reader(info)
            found = await reader.entry_for_offset(offset)
            entry_id = EntryId((info.entry_count if found is None else found) - 1)
            if entry_id < 0:
                continue
            entry = self._environment.decode_entry(info.ledger_id, (await reader.read(entry_id, 1))[0])
            return entry if entry.last_offset >= self.log_start else None
        return None

    async def _despite_rewriting(self, read: Callable[[], Awaitable[T]]) -> T:
        """What `read` returns; `read` is called again if compaction has replaced a ledger that it was reading."""
        while True:
            before = self.rewrite_count
            try:
                return await read()
            except LedgerNotFound:
                if self.rewrite_count == before:
                    raise

    async def _reader(self, info: LedgerInfo) -> LedgerReader:
        if info.reader is None:
            info.reader = await self._environment.store.open(info.stored_id)
        return info.reader

    # --- by position -------------------------------------------------------------------------------------------------

    def locate_cached(self, ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
        """The readable entry at exactly this position if it is cached, for entries that were delivered a moment ago."""
        entry = self._run.find(ledger_id, entry_id)
        if entry is None or not self.log_start <= entry.last_offset < self.high_watermark:
            return None
        return entry

    async def locate(self, ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
        """The readable entry at this position, or else the first one after it; None if that is the end.

        Raises as `read`.
        """
        return await self._despite_rewriting(partial(self._locate, ledger_id, entry_id))

    async def _locate(self, ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
        for info in self._chain.from_ledger(ledger_id):
            first = EntryId(max(entry_id, 0) if info.ledger_id == ledger_id else 0)
            if info.end_offset <= self.log_start:
                continue
            cached = self._run.find(info.ledger_id, first)
            if cached is not None:
                found = cached if cached.last_offset < self.high_watermark else None
            else:
                found = await self._first_of(info, ledger_id, EntryId(max(entry_id, 0)))
            if found is not None:
                return found if found.last_offset >= self.log_start else await self.entry_at(self.log_start)
        return None

    async def _first_of(self, info: LedgerInfo, ledger_id: LedgerId, first: EntryId) -> Entry | None:
        """The first entry of a ledger at or after a position; None if it has none."""
        try:
            reader = await self._reader(info)
            if info.rewritten_id is not None:
                first = await self._moved_to(info, reader, ledger_id, first)
            elif info.ledger_id != ledger_id:
                first = EntryId(0)
            stored = await reader.read(first, 1)
        except LedgerNotFound:
            if info in self._chain or info.end_offset > self.log_start:
                raise
            return None  # retention has deleted the ledger meanwhile
        return self._environment.decode_entry(info.ledger_id, stored[0]) if stored else None

    async def _moved_to(
        self, info: LedgerInfo, reader: LedgerReader, ledger_id: LedgerId, entry_id: EntryId
    ) -> EntryId:
        """The id, in a rewritten ledger, of the first entry that was at or after a position; the old positions
        ascend.
        """
        low, high = 0, info.entry_count
        while low < high:
            middle = (low + high) // 2
            (stored,) = await reader.read(EntryId(middle), 1)
            entry = self._environment.decode_entry(info.ledger_id, stored)
            if (entry.ledger_id, entry.entry_id) < (ledger_id, entry_id):
                low = middle + 1
            else:
                high = middle
        return EntryId(low)

    # --- by time -----------------------------------------------------------------------------------------------------

    async def entry_for_timestamp(self, timestamp_ms: int, from_offset: int) -> Entry | None:
        """The first readable entry that ends at or after `from_offset` and whose greatest timestamp is at least
        `timestamp_ms`; None if there is none.
        """
        return await self._despite_rewriting(partial(self._entry_for_timestamp, timestamp_ms, from_offset))

    async def _entry_for_timestamp(self, timestamp_ms: int, from_offset: int) -> Entry | None:
        for info in self._chain:
            from_offset = max(from_offset, self.log_start)
            if info.is_empty or info.end_offset <= from_offset or info.max_timestamp_ms < timestamp_ms:
                continue
            reader = await self._reader(info)
            newest = await reader.entry_for_timestamp(timestamp_ms)
            if newest is None:
                continue
            entry_id = newest
            if info.first_offset < from_offset:
                readable = await reader.entry_for_offset(from_offset)
                if readable is None:
                    continue
                entry_id = max(newest, readable)
            while stored := await reader.read(entry_id, _SEARCH_BYTES):
                for one in stored:
                    if one.max_timestamp_ms >= timestamp_ms:
                        return self._environment.decode_entry(info.ledger_id, one)
                entry_id = EntryId(stored[-1].entry_id + 1)
        return None

    @property
    def max_timestamp_ms(self) -> int:
        """The greatest record timestamp, in ms, in the readable log's ledgers; -1 if there is none."""
        return self._chain.max_timestamp_ms(self.log_start)

    # --- the chain ---------------------------------------------------------------------------------------------------

    @property
    def ledgers(self) -> Iterable[LedgerInfo]:
        """The ledgers of the chain, the oldest first; the caller must not change them."""
        return iter(self._chain)

    def ledgers_between(self, from_offset: int, to_offset: int) -> list[LedgerInfo]:
        """The ledgers with durable entries from `from_offset` (inclusive) to `to_offset` (exclusive), the oldest
        first; the caller must not change them.
        """
        return self._chain.overlapping(from_offset, to_offset)

    @property
    def stored_ids(self) -> list[LedgerId]:
        """The store's ids of the log's ledgers, and of the one that Pulsar's compaction keeps beside it."""
        beside = [] if self.compacted is None else [self.compacted.ledger_id]
        return [info.stored_id for info in self._chain] + beside

    @property
    def last_ledger_id(self) -> LedgerId:
        """The id of the chain's last ledger; `NO_LEDGER` if there is none."""
        infos = list(self._chain)
        return infos[-1].ledger_id if infos else NO_LEDGER

    @property
    def size_bytes(self) -> int:
        """Stored bytes of all ledgers of the chain."""
        return self._chain.size_bytes

    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was, or will be, written."""
        if offset >= self.high_watermark or not self._chain:
            return self.leader_epoch
        return self._chain.epoch_at(offset)

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Where `leader_epoch` ended; None if it is negative or this log has not reached it (KIP-101, KIP-320)."""
        if not 0 <= leader_epoch <= self.leader_epoch:
            return None
        if leader_epoch == self.leader_epoch:
            return EpochEnd(leader_epoch, self.high_watermark)
        return self._chain.epoch_end(leader_epoch, self.log_start, self.high_watermark)
