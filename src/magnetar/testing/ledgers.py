"""A `LedgerStore` in memory: a test decides when entries are durable, and what fails.

With `automatic=False` appends, creations and deletions wait in one queue, as in a journal, until the test calls
`write` or `fail`.  As in a store on other machines, an append that failed may be found when its ledger is sealed
(`fail(kept=1)`).  `crash` returns the store that the next start finds: with everything written, and all ledgers
unsealed.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from magnetar.base.errors import LedgerFenced, LedgerNotFound, StorageError, StorageFull
from magnetar.storage.store import (
    READ_ENTRIES_MAX,
    Buffer,
    Done,
    EntryId,
    LedgerId,
    LedgerStat,
    StoredEntry,
)


def stat_of(ledger_id: LedgerId, entries: Sequence[StoredEntry], *, sealed: bool) -> LedgerStat:
    """What a store knows about a ledger that has these entries."""
    return LedgerStat(
        ledger_id,
        len(entries),
        sum(len(entry.body) for entry in entries),
        entries[-1].last_offset if entries else -1,
        max((entry.max_timestamp_ms for entry in entries), default=-1),
        sealed,
    )


@dataclass(slots=True)
class _Waiting:
    """One write in the queue: `apply` makes it durable, `report` notifies its caller."""

    ledger: "MemoryLedger | None"
    apply: Callable[[], None]
    report: Done


class MemoryLedger:
    """Implements `LedgerWriter`."""

    def __init__(self, store: "MemoryLedgerStore", ledger_id: LedgerId, entries: list[StoredEntry]) -> None:
        self._store = store
        self.ledger_id = ledger_id
        self.entries = entries
        self.appended = len(entries)
        self.sealed = False
        self.failed = False
        self.found_when_sealed: list[Callable[[], None]] = []
        """What makes the entries readable that were kept although their appends failed."""
        self.deleted = False
        self.read_count = 0
        """How many entries reads have returned."""

    @property
    def stat(self) -> LedgerStat:
        return stat_of(self.ledger_id, self.entries, sealed=self.sealed)

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        done: Done,
        tail_crc: int | None = None,
    ) -> EntryId:
        if self.sealed or self.failed:
            raise LedgerFenced(f"ledger {self.ledger_id} takes no more entries")
        if self._store.full:
            raise StorageFull("the disk is full")
        body = b"".join(parts)
        assert len(body) == size, (len(body), size)
        assert tail_crc is None or tail_crc == crc32c(parts[-1])
        entry = StoredEntry(EntryId(self.appended), last_offset, max_timestamp_ms, memoryview(body))
        self.appended += 1
        self._store.enqueue(_Waiting(self, lambda: self.entries.append(entry), done))
        return entry.entry_id

    async def seal(self) -> LedgerStat:
        if self._store.refuses_seals:
            raise StorageError(f"ledger {self.ledger_id} cannot be sealed now")
        self.sealed = True
        while self.appended > len(self.entries) and not self.failed:
            await self._store.changed()
        kept, self.found_when_sealed = self.found_when_sealed, []
        for apply in kept:
            apply()
        return self.stat

    async def read(
        self, first: EntryId, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[StoredEntry]:
        await asyncio.sleep(0)
        if self.deleted:
            raise LedgerNotFound(f"ledger {self.ledger_id} was deleted")
        found: list[StoredEntry] = []
        for entry in self.entries[first : first + entries_max]:
            bytes_max -= len(entry.body)
            if found and bytes_max < 0:
                break
            found.append(entry)
        self.read_count += len(found)
        return found

    async def entry_for_offset(self, offset: int) -> EntryId | None:
        await asyncio.sleep(0)
        return next((entry.entry_id for entry in self.entries if entry.last_offset >= offset), None)

    async def entry_for_timestamp(self, timestamp_ms: int) -> EntryId | None:
        await asyncio.sleep(0)
        return next(
            (entry.entry_id for entry in self.entries if entry.max_timestamp_ms >= timestamp_ms), None
        )


class MemoryLedgerStore:
    """See the module's text."""

    def __init__(self, *, automatic: bool = True) -> None:
        self.ledgers: dict[LedgerId, MemoryLedger] = {}
        self.automatic = automatic
        self.full = False
        self.refuses_seals = False
        self._next_id = 1
        self._queue: list[_Waiting] = []
        self._changed = asyncio.Event()
        self._write_scheduled = False

    def __len__(self) -> int:
        """How many writes wait in the queue."""
        return len(self._queue)

    # --- the disk, played by the test --------------------------------------------------------------------------------

    def write(self, count: int | None = None) -> None:
        """Make the oldest `count` waiting writes durable (default: all that wait now)."""
        due, self._queue = self._queue[:count], self._queue[len(self._queue[:count]) :]
        for one in due:
            one.apply()
            one.report(None)
        self._wake()

    def fail(self, error: StorageError | None = None, kept: int = 0) -> None:
        """Fail all waiting writes, as a journal does after a failed write; the first `kept` appends of them are in
        their ledgers all the same.
        """
        due, self._queue = self._queue, []
        for one in due:
            if one.ledger is not None:
                one.ledger.failed = True
                one.ledger.appended = len(one.ledger.entries)
                if kept:
                    kept -= 1
                    one.ledger.found_when_sealed.append(one.apply)
        for one in due:
            one.report(error or StorageError("the journal could not be written"))
        self._wake()

    def crash(self) -> "MemoryLedgerStore":
        """The store that the next start finds; this one must not be used any more."""
        found = MemoryLedgerStore(automatic=self.automatic)
        found._next_id = self._next_id
        for ledger_id, ledger in self.ledgers.items():
            found.ledgers[ledger_id] = MemoryLedger(found, ledger_id, list(ledger.entries))
        return found

    # --- the port ----------------------------------------------------------------------------------------------------

    async def create(self) -> MemoryLedger:
        ledger_id = LedgerId(self._next_id)
        self._next_id += 1
        ledger = MemoryLedger(self, ledger_id, [])
        await self._control(lambda: self.ledgers.update({ledger_id: ledger}))
        return ledger

    async def open(self, ledger_id: LedgerId) -> MemoryLedger:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            raise LedgerNotFound(f"there is no ledger {ledger_id}")
        await ledger.seal()
        return ledger

    async def delete(self, ledger_id: LedgerId) -> None:
        ledger = self.ledgers.get(ledger_id)
        if ledger is None:
            return

        def apply() -> None:
            if self.ledgers.pop(ledger_id, None) is not None:
                ledger.deleted = True

        await self._control(apply)

    async def list_ledgers(self) -> list[LedgerStat]:
        return [self.ledgers[ledger_id].stat for ledger_id in sorted(self.ledgers)]

    async def close(self) -> None:
        self.write()

    # --- inside ------------------------------------------------------------------------------------------------------

    def enqueue(self, one: _Waiting) -> None:
        self._queue.append(one)
        if self.automatic and not self._write_scheduled:
            self._write_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_by_itself)

    def _write_by_itself(self) -> None:
        self._write_scheduled = False
        if self.automatic:
            self.write()

    async def changed(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _control(self, apply: Callable[[], None]) -> None:
        if self.full:
            raise StorageFull("the disk is full")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def report(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.enqueue(_Waiting(None, apply, report))
        await done
