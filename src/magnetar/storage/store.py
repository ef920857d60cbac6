"""The `LedgerStore` port: append-only ledgers with one writer each.

A ledger is a dense sequence of entries 0, 1, 2, ...  One `LedgerWriter` writes it, then it is sealed, and never
changes again.  After a crash the ledger that was open is *recovered*: `open` cuts it after its last whole entry,
seals it there and returns a reader.  If its old writer still exists, `open` fences it.

The write path is synchronous, without coroutines.  `append` only queues.  The store writes everything that is queued,
of all its ledgers, in one synced write (a *round*).  It calls each entry's `done` from the event loop, in the order of
the appends.  A reader sees an entry only after `done(None)` was called for it.

Entries carry two numbers that the store keeps in its own index, so that a look-up never scans.  `last_offset` is the
Kafka offset, or Pulsar index, of the entry's last message; it ascends from entry to entry.  `max_timestamp_ms` is the
greatest record timestamp in the entry; it need not ascend.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol, runtime_checkable

Buffer = bytes | bytearray | memoryview
LedgerId = NewType("LedgerId", int)
EntryId = NewType("EntryId", int)

LEASE_S_MAX: Final = 3600
# The most entries of one read: a reader on the event loop handles this many in 5 ms, however small they are.
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
    """What is known about a ledger without reading its entries.  Offsets and timestamps (ms) are -1 while it is
    empty.
    """

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
        `bytes_max`.  There are at most `entries_max`, which is at most `READ_ENTRIES_MAX`.

        Empty if `first` is after the last durable entry.

        Raises:
            EntryCorrupt: entry `first` fails its checksum.  If a later entry does, only the whole entries before it
                are returned.
            LedgerNotFound: the ledger was deleted.
            StorageError: the disk cannot be read.
        """
        ...

    async def entry_for_offset(self, offset: int) -> EntryId | None:
        """The id of the first entry whose `last_offset` >= `offset`; None if there is none."""
        ...

    async def entry_for_timestamp(self, timestamp_ms: int) -> EntryId | None:
        """The id of the first entry whose `max_timestamp_ms` >= `timestamp_ms`; None if there is none."""
        ...


class LedgerWriter(LedgerReader, Protocol):
    """The one writer of an open ledger; it also reads it."""

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        done: Done,
        tail_crc: int | None = None,
    ) -> EntryId:
        """Queue one entry, the concatenation of `parts` (`size` bytes in all), and return its id at once.

        `tail_crc` is the CRC32C of the last part, from a caller that has verified it; so a store need not sum a large
        part again.

        The parts must stay unchanged until the entry is in its segment; the store keeps its own references.  The
        store calls `done(None)` when the entry is on disk, or `done(error)` when it failed.  All entries after a failed
        one fail, too, and the ledger takes no more (`LedgerFenced`), so the caller seals it and continues in a new
        one.  A store on other machines may have kept some of what failed: `seal` tells.

        Raises:
            LedgerFenced: the ledger is sealed, fenced or failed.
            StorageFull: there is no room for the entry now; nothing was queued, and the ledger stays open.
            StorageError: the entry cannot be written now (or ever, if it is too large); nothing was queued.
        """
        ...

    async def seal(self) -> LedgerStat:
        """Wait for the queued entries, then close the ledger for ever.  Sealing twice is harmless.

        Returns where the ledger ends: after its last acknowledged entry, or after some that failed, in their order.

        Raises:
            LedgerNotFound: the ledger was deleted.
            StorageError: whether it is sealed is not known; to be tried again.
        """
        ...


class LedgerStore(Protocol):
    async def create(self) -> LedgerWriter:
        """A new, empty ledger with an id that was never used, not even before a crash."""
        ...

    async def open(self, ledger_id: LedgerId) -> LedgerReader:
        """Open for reading; an unsealed ledger is fenced, recovered and sealed first.  Raises LedgerNotFound if there
        is none.
        """
        ...

    async def delete(self, ledger_id: LedgerId) -> None:
        """Delete a ledger, and free its space.  Readers keep the entries that they hold; deleting twice is harmless."""
        ...

    async def list_ledgers(self) -> list[LedgerStat]:
        """All ledgers, ordered by id."""
        ...

    async def close(self) -> None:
        """Finish queued writes, flush, and release every file."""
        ...


@dataclass(frozen=True, slots=True)
class SegmentStat:
    """How much of a ledger is in its file, so that another process can read it there.

    The bytes below `end_position` are whole records, and never change.  The bytes after it have no meaning.
    """

    path: str
    is_finished: bool
    """Whether the file is complete: nothing will be written to it any more."""

    end_position: int
    entry_count: int
    last_offset: int
    max_timestamp_ms: int
    """Of the records below `end_position`, as is `last_offset`; both are -1 if there are none."""


class SegmentLeases(Protocol):
    """Which segment files stay although their ledgers are deleted, because another process reads them.

    A lease ends if its holder does not renew it within its length, in seconds.  It survives the death of the server.
    """

    def open(self, length_s: int) -> str:
        """The id of a new lease of 1 to `LEASE_S_MAX` seconds, on no ledger yet; `save` stores it.

        Raises:
            TooManyLeases
        """
        ...

    def add(self, lease_id: str, ledgers: Iterable[LedgerId]) -> None:
        """Add ledgers to a lease: from now on their files stay.

        Raises:
            LeaseNotFound, TooManyLeases
        """
        ...

    async def save(self, lease_id: str) -> None:
        """Store the lease; return when the next start would find it, or when it cannot be stored.  It is valid in
        either case.

        Raises:
            LeaseNotFound
        """
        ...

    async def renew(self, lease_id: str, length_s: int | None) -> None:
        """Let the lease end after its length from now; `length_s`, if given, is its new length.

        Raises:
            LeaseNotFound
        """
        ...

    async def end(self, lease_id: str) -> None:
        """End a lease, because its holder does not need the files any more.

        Raises:
            LeaseNotFound
        """
        ...

    def ids(self) -> frozenset[str]:
        """The ids of all leases that are held."""
        ...

    def drop(self, lease_id: str) -> None:
        """As `end`, but without waiting; does nothing if the lease has ended."""
        ...


class SegmentFiles(Protocol):
    """The files of a store that keeps each ledger in one."""

    @property
    def store_id(self) -> str:
        """The permanent id of this store, which is also in a file of its directory."""
        ...

    @property
    def leases(self) -> SegmentLeases: ...

    def stat(self, ledger_id: LedgerId) -> SegmentStat | None:
        """How much of a ledger is in its file, from memory; None if the ledger is gone."""
        ...

    async def write_out(self, ledger_id: LedgerId) -> None:
        """Write the durable entries of the ledger to its file now, as far as the disk allows."""
        ...

    async def find_cuts(
        self, ledger_id: LedgerId, from_offset: int, to_offset: int, step_bytes: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Where to begin reading for the offsets from `from_offset` (inclusive) to `to_offset` (exclusive), and where
        to end.

        Returns the cuts and the end position.  A cut is (offset, position): all records before `position` end before
        `offset`.  Cuts ascend, and are about `step_bytes` apart; the first is the last known one at or before
        `from_offset`.  An offset of -1 means the ledger's first one, in the arguments and in the result.  All cuts are
        below the end.

        Raises:
            LedgerNotFound, EntryCorrupt, StorageError
        """
        ...


@runtime_checkable
class HasSegmentFiles(Protocol):
    """A `LedgerStore` whose ledgers can be read as files."""

    @property
    def segment_files(self) -> SegmentFiles: ...
