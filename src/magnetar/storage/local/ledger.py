"""One ledger in memory: its state, its index, and the entries that are not in its segment yet.

All of it belongs to the event loop.  Threads get copies of what they need, and the loop applies what they report.

An entry's way: `append` numbers it and queues it in the journal.  `LocalLedgerStore` calls `on_durable` when its
round is on disk, which makes it readable and *dirty*.  The flusher writes dirty entries to the segment.  A checkpoint
syncs the segment, and notes in the catalogue how far it reaches.
"""

import asyncio
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol

from crc32c import crc32c

from magnetar.base.errors import LedgerFenced, LedgerNotFound, StorageError
from magnetar.storage.local.checksums import joined
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.segment import Dirty
from magnetar.storage.segment_format import NOTHING_BEFORE
from magnetar.storage.store import (
    READ_ENTRIES_MAX,
    Buffer,
    Done,
    EntryId,
    LedgerId,
    LedgerStat,
    StoredEntry,
)
from magnetar.wire.stored import RECORD_BYTES, RECORD_REST, RECORD_START


class State(Enum):
    OPEN = auto()  # takes appends
    FAILED = auto()  # a write failed: takes no more; what is durable stays readable
    SEALING = auto()  # fenced; queued entries are still on their way
    RECOVERED = auto()  # found unsealed at start; no log has opened it yet
    SEALED = auto()  # complete; the footer may still have to be written
    DELETED = auto()


_OPEN: Final = State.OPEN  # asked for each entry, so without a look-up in the class
_dirty: Final = tuple.__new__  # as a named tuple does, without a Python call
_pack_start: Final = RECORD_START.pack
_pack_rest: Final = RECORD_REST.pack


class Queued:
    """One record on its way to the disk.  `ledger` is None for a control record."""

    __slots__ = ("done", "header", "last_offset", "ledger", "max_timestamp_ms", "parts", "size")

    def __init__(
        self,
        ledger: "LocalLedger | None",
        header: bytes,
        parts: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        done: Done,
    ) -> None:
        self.ledger = ledger
        self.header = header
        self.parts = parts
        self.size = size
        self.last_offset = last_offset
        self.max_timestamp_ms = max_timestamp_ms
        self.done = done


class Appends(Protocol):
    """The journal, as a ledger uses it."""

    def append(self, entry: Queued) -> None: ...


class Finds(Protocol):
    """The reader of segments, as a ledger uses it."""

    async def read(
        self, ledger: "LocalLedger", first: int, bytes_max: int, entries_max: int
    ) -> list[StoredEntry]: ...
    async def find_offset(self, ledger: "LocalLedger", offset: int) -> EntryId | None: ...
    async def find_timestamp(self, ledger: "LocalLedger", timestamp_ms: int) -> EntryId | None: ...


class LedgerHome(Protocol):
    """The store, as one of its ledgers uses it."""

    loop: asyncio.AbstractEventLoop
    entry_bytes_max: int

    @property
    def journal(self) -> Appends: ...
    @property
    def reads(self) -> Finds: ...

    def touch(self, ledger: "LocalLedger") -> None:
        """Note that the ledger has changed, so that the next checkpoint looks at it."""
        ...


class LocalLedger:
    """Implements `LedgerWriter`; `open` returns it as a `LedgerReader`."""

    __slots__ = (
        "__weakref__",
        "dirty",
        "dirty_bytes",
        "durable_count",
        "finished",
        "flushed_count",
        "flushed_last_offset",
        "flushed_max_timestamp",
        "flushed_position",
        "flushing",
        "has_file",
        "index",
        "last_offset",
        "ledger_id",
        "max_timestamp_ms",
        "next_entry",
        "points_noted",
        "position",
        "rest",
        "seal_waiters",
        "state",
        "store",
        "touched",
    )

    def __init__(self, store: LedgerHome, ledger_id: LedgerId, state: State) -> None:
        self.store = store
        self.ledger_id = ledger_id
        self.state = state
        self.next_entry = 0
        """The id of the next append."""
        self.durable_count = 0
        self.position = 0
        """The position in the segment where the last durable entry ends, or will end."""
        self.last_offset = NOTHING_BEFORE
        self.max_timestamp_ms = NOTHING_BEFORE
        self.index: SparseIndex | None = None
        """None while the ledger is empty, and for a finished ledger until a reader needs it."""
        self.dirty: list[Dirty] = []
        self.dirty_bytes = 0
        self.flushed_count = 0
        self.flushed_position = 0
        self.flushed_last_offset = NOTHING_BEFORE
        self.flushed_max_timestamp = NOTHING_BEFORE
        self.flushing = False
        self.rest: bytes | None = b""
        """The content of the segment's last, partial block; None if the file of an earlier process has it."""
        self.has_file = False
        self.points_noted = 0
        """How many index points the catalogue has."""
        self.touched = False
        """Whether the ledger has changed since the last checkpoint."""
        self.finished = False
        """Whether the ledger is sealed and its segment has a footer."""
        self.seal_waiters: list[asyncio.Future[None]] | None = None

    # -- writing

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        done: Done,
        tail_crc: int | None = None,
    ) -> EntryId:
        if self.state is not _OPEN:
            raise LedgerFenced(f"ledger {self.ledger_id} takes no more entries ({self.state.name.lower()})")
        entry_id = self.next_entry
        rest = _pack_rest(self.ledger_id, entry_id, last_offset, max_timestamp_ms)
        checksum = crc32c(rest)
        found = 0
        for part in parts if tail_crc is None else parts[:-1]:
            checksum = crc32c(part, checksum)
            found += len(part)
        if tail_crc is not None:
            tail_bytes = len(parts[-1])
            checksum = joined(checksum, tail_crc, tail_bytes)
            found += tail_bytes
        assert found == size, f"parts have {found} bytes, not {size}"
        store = self.store
        if size > store.entry_bytes_max:
            raise StorageError(f"an entry of {size} bytes is larger than the journal's files allow")
        header = _pack_start(size, checksum) + rest
        store.journal.append(Queued(self, header, parts, size, last_offset, max_timestamp_ms, done))
        self.next_entry = entry_id + 1
        return EntryId(entry_id)

    def on_durable(self, entry: Queued) -> None:
        """`entry` is durable in the journal: make it readable."""
        position = self.position
        index = self.index
        if index is None:
            index = self.index = SparseIndex()
        if index.wants_point(position):
            index.add(self.durable_count, position, self.last_offset, self.max_timestamp_ms)
        size = RECORD_BYTES + entry.size
        self.position = position + size
        last_offset = self.last_offset = entry.last_offset
        max_timestamp_ms = self.max_timestamp_ms
        if entry.max_timestamp_ms > max_timestamp_ms:
            max_timestamp_ms = self.max_timestamp_ms = entry.max_timestamp_ms
        self.durable_count += 1
        self.dirty.append(_dirty(Dirty, (entry.header, entry.parts, last_offset, max_timestamp_ms)))
        self.dirty_bytes += size

    def on_failed(self) -> None:
        """A write failed: the ledger ends with what is durable."""
        self.next_entry = self.durable_count
        self.fence()

    def fence(self) -> None:
        """Take no more appends; what is queued still counts."""
        if self.state is State.OPEN:
            self.state = State.FAILED

    async def seal(self) -> LedgerStat:
        if self.state is State.DELETED:
            raise LedgerNotFound(f"ledger {self.ledger_id} was deleted")
        if self.state is not State.SEALED:
            self.state = State.SEALING
            # Appends after the deletion of the ledger never become durable.
            while self.durable_count < self.next_entry and not self.deleted:
                waiter = self.store.loop.create_future()
                if self.seal_waiters is None:
                    self.seal_waiters = []
                self.seal_waiters.append(waiter)
                await waiter
            if self.state is State.SEALING:
                self.state = State.SEALED
                self.store.touch(self)
        return self.stat

    def wake_sealers(self) -> None:
        """Wake callers of `seal`, because this ledger's queue has become shorter, or the ledger is gone."""
        if self.seal_waiters and (self.durable_count >= self.next_entry or self.state is State.DELETED):
            waiters, self.seal_waiters = self.seal_waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # -- write-behind

    def on_flushed(self, count: int, position: int, rest: bytes) -> None:
        """The segment has everything up to `position`, which includes the first `count` dirty entries."""
        if count:
            last = self.dirty[count - 1]
            self.flushed_last_offset = last.last_offset
            self.flushed_max_timestamp = last.max_timestamp_so_far
            del self.dirty[:count]
        self.flushed_count += count
        self.dirty_bytes -= position - self.flushed_position
        self.flushed_position = position
        self.rest = rest
        self.has_file = True

    # -- reading

    @property
    def deleted(self) -> bool:
        return self.state is State.DELETED

    @property
    def stat(self) -> LedgerStat:
        empty = self.durable_count == 0
        return LedgerStat(
            self.ledger_id,
            self.durable_count,
            self.position - RECORD_BYTES * self.durable_count,
            -1 if empty else self.last_offset,
            -1 if empty else self.max_timestamp_ms,
            self.state is State.SEALED,
        )

    async def read(
        self, first: EntryId, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[StoredEntry]:
        return await self.store.reads.read(self, first, bytes_max, entries_max)

    async def entry_for_offset(self, offset: int) -> EntryId | None:
        if self.durable_count == 0 or offset > self.last_offset:
            return None
        return await self.store.reads.find_offset(self, offset)

    async def entry_for_timestamp(self, timestamp_ms: int) -> EntryId | None:
        if self.durable_count == 0 or timestamp_ms > self.max_timestamp_ms:
            return None
        return await self.store.reads.find_timestamp(self, timestamp_ms)
