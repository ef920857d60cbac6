"""The `LedgerStore` port: append-only ledgers with one writer each.

A ledger is a dense sequence of entries 0, 1, 2, ...  It is written by one `LedgerWriter`, then sealed; a
sealed ledger never changes.  After a crash the ledger that was open is *recovered*: `open` cuts it at the
last entry that is whole, seals it there and returns a reader.  A log that takes a ledger over that way fences its old
writer.

The write path is synchronous and has no coroutine in it: `append` only queues; the store folds everything
that was queued, over all its ledgers, into one synced write (a *round*) and calls each entry's `done` from
the event loop, in the order of the appends.  A reader sees an entry once `done(None)` was called for it, not
before.

Entries carry two numbers that the store keeps in an index of its own, so that looking a position up never
scans: `last_offset` (the Kafka offset, Pulsar index, of the entry's last message; grows from entry to entry)
and `max_timestamp_ms` (the greatest record timestamp in the entry; need not grow).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview
LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)

LEASE_S_MAX: Final = 3600
# Of one read: a reader on the event loop handles so many in 5 ms, however small they are.
READ_ENTRIES_MAX: Final = 2_000

Done = Callable[[Exception | None], None]


@dataclass(slots=True)
class StoredEntry:
    """One entry as it was appended.  `body` stays valid for as long as it is referenced."""

    entry_id: EntryId
    last_offset: int
    max_timestamp_ms: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class LedgerStat:
    """What is known of a ledger without reading its entries.  Offsets and timestamps are -1 while it is
    empty."""

    ledger_id: LedgerId
    entry_count: int
    size_bytes: int
    last_offset: int
    max_timestamp_ms: int
    sealed: bool


class LedgerReader(Protocol):
    """Reads a ledger, open or sealed, up to its last durable entry."""

    @property
    def stat(self) -> LedgerStat: ...

    async def read(
        self, first: EntryId, bytes_max: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[StoredEntry]:
        """Consecutive entries from `first` on: at least one, then as many as keep the sum of bodies within
        `bytes_max`, and `entries_max` at most, which is at most `READ_ENTRIES_MAX`.

        Empty when `first` lies past the last durable entry.

        Raises:
            EntryCorrupt: the first entry asked for fails its checksum.  Whole entries before a corrupt one
                are returned; the corrupt one itself raises when it is the first.
            LedgerNotFound: the ledger was deleted.
            StorageError: the disk cannot be read.
        """
        ...

    async def entry_for_offset(self, offset: int) -> EntryId | None:
        """The first entry whose `last_offset` >= `offset`; None when there is none."""
        ...

    async def entry_for_timestamp(self, timestamp_ms: int) -> EntryId | None:
        """The first entry whose `max_timestamp_ms` >= `timestamp_ms`; None when there is none."""
        ...


class LedgerWriter(LedgerReader, Protocol):
    """The one writer of an open ledger; it also reads it."""

    def append(
        self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp_ms: int, done: Done
    ) -> EntryId:
        """Queue one entry, the concatenation of `parts` (`size` bytes in all), and return its id at once.

        The parts must stay unchanged until the entry has been written behind; the store keeps its own
        references. `done(None)` is called when the entry is on disk; `done(error)` when it will never be: a
        failed entry is followed only by failed ones, and the ledger takes no more (`LedgerFenced`), so the
        caller seals it and goes on in a new one.

        Raises:
            LedgerFenced: the ledger is sealed, fenced or failed.
            StorageFull: there is no room for it now; nothing was queued and the ledger stays open.
            StorageError: it cannot be written now (or ever, when it is too large); nothing was queued.
        """
        ...

    async def seal(self) -> LedgerStat:
        """Wait for what is queued, then close the ledger for good.  Sealing twice is harmless."""
        ...


class LedgerStore(Protocol):
    async def create(self) -> LedgerWriter:
        """A new, empty ledger with an id never used before, also not before a crash."""
        ...

    async def open(self, ledger_id: LedgerId) -> LedgerReader:
        """Open for reading; an unsealed ledger is fenced, recovered and sealed first.  LedgerNotFound if
        unknown."""
        ...

    async def delete(self, ledger_id: LedgerId) -> None:
        """Give the space back.  Readers that hold entries keep them; deleting twice is harmless."""
        ...

    async def list_ledgers(self) -> list[LedgerStat]:
        """Every ledger there is, in order of id."""
        ...

    async def close(self) -> None:
        """Finish queued writes, flush, and release every file."""
        ...


@dataclass(frozen=True, slots=True)
class SegmentStat:
    """What of a ledger lies in its file, so that another process can read it there.

    The bytes below `end_position` are whole records, and never change.  What lies behind has no meaning.
    """

    path: str
    is_finished: bool
    """Nothing will be written to the file any more."""

    end_position: int
    entry_count: int
    last_offset: int
    max_timestamp_ms: int
    """Of what lies below `end_position`, as `last_offset`; both -1 when nothing does."""


class SegmentLeases(Protocol):
    """Which segment files stay although their ledgers are deleted, because a process outside reads them.

    A lease ends when it was not renewed for its length, in seconds.  It survives the death of the process.
    """

    def open(self, length_s: int) -> str:
        """The id of a new lease of 1 to `LEASE_S_MAX` seconds, on nothing yet; `save` makes it last.

        Raises:
            TooManyLeases
        """
        ...

    def add(self, lease_id: str, ledgers: Iterable[LedgerId]) -> None:
        """From now on, at once, the files of these ledgers stay.

        Raises:
            LeaseNotFound, TooManyLeases
        """
        ...

    async def save(self, lease_id: str) -> None:
        """Return when a start would find the lease as it is, or when it cannot be stored: it holds in any case.

        Raises:
            LeaseNotFound
        """
        ...

    async def renew(self, lease_id: str, length_s: int | None) -> None:
        """Let the lease end its length from now; `length_s`, if given, is its length from now on.

        Raises:
            LeaseNotFound
        """
        ...

    async def end(self, lease_id: str) -> None:
        """The files are not needed any more.

        Raises:
            LeaseNotFound
        """
        ...

    def ids(self) -> frozenset[str]:
        """Of all leases that are held."""
        ...

    def drop(self, lease_id: str) -> None:
        """As `end`, at once; nothing happens when it has ended."""
        ...


class SegmentFiles(Protocol):
    """The files of a store that keeps each ledger in one."""

    @property
    def store_id(self) -> str:
        """Names this store for ever; also written into its directory."""
        ...

    @property
    def leases(self) -> SegmentLeases: ...

    def stat(self, ledger_id: LedgerId) -> SegmentStat | None:
        """From memory, at once; None when the ledger is gone."""
        ...

    async def write_out(self, ledger_id: LedgerId) -> None:
        """Bring what is durable of the ledger into its file now, as far as the disk takes it."""
        ...

    async def cuts(
        self, ledger_id: LedgerId, from_offset: int, to_offset: int, step_bytes: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Where to begin reading for the offsets from `from_offset` to before `to_offset`, and where to end.

        The cuts are (offset, position): the first record at `position` has `offset` as its last entry's successor,
        they grow, are about `step_bytes` apart, and the first one is the last known at or before `from_offset`.  An
        offset of -1 stands for the ledger's first one, here and in the answer.  All cuts lie below the end.

        Raises:
            LedgerNotFound, EntryCorrupt, StorageError
        """
        ...


@runtime_checkable
class HasSegmentFiles(Protocol):
    """A `LedgerStore` whose ledgers can be read as files."""

    @property
    def segment_files(self) -> SegmentFiles: ...
