"""The entry cache: the entries appended most recently, of all partitions, within a limit in bytes.

Readers at the end of a log read from here, and not from a file.  An entry's payload is the memory that received its
request, so the cache copies nothing: it only keeps that block from being used again.  Entries leave in the order in
which they came, whatever their partition.  Therefore the cached entries of a partition are always the end of its log,
without holes.
"""

from bisect import bisect_left
from collections import deque
from typing import Final

from magnetar.ledger.entry import NO_LEDGER, Entry
from magnetar.storage.store import READ_ENTRIES_MAX, EntryId, LedgerId

ENTRY_OVERHEAD_BYTES: Final = (
    400  # bytes that CPython uses for an Entry, its memoryview and its places in our lists
)
_BEHIND_ALL: Final = LedgerId(1 << 63)
_COMPACT_AT: Final = 1024  # evicted places at the head of a run before the list is cut


class CachedRun:
    """The cached end of one partition's log: consecutive entries, the newest last."""

    __slots__ = ("_entries", "_head", "_last_offsets")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._last_offsets: list[int] = []
        self._head = 0  # entries before it were evicted

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def push(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._last_offsets.append(entry.last_offset)

    def read(
        self, offset: int, bytes_max: int, end_offset: int, entries_max: int = READ_ENTRIES_MAX
    ) -> list[Entry] | None:
        """Entries from the one that holds `offset` on, below `end_offset`: the first, then as many as fit
        `bytes_max`.

        There are at most `entries_max`.  None if the entry that holds `offset` is not cached.
        """
        entries = self._entries
        index = bisect_left(self._last_offsets, offset, self._head)
        if index == len(entries) or entries[index].base_offset > offset:
            return None
        found: list[Entry] = []
        for position in range(index, min(len(entries), index + entries_max)):
            entry = entries[position]
            bytes_max -= len(entry.payload)
            if entry.last_offset >= end_offset or (bytes_max < 0 and found):
                break
            found.append(entry)
        return found

    def find(self, ledger_id: LedgerId, entry_id: EntryId) -> Entry | None:
        """The entry at exactly this position; None if it is not cached."""
        # Positions ascend with the offsets, except that entries at the end may have none yet.
        index = bisect_left(self._entries, (ledger_id, entry_id), self._head, key=_position)
        if index == len(self._entries):
            return None
        entry = self._entries[index]
        return entry if (entry.ledger_id, entry.entry_id) == (ledger_id, entry_id) else None

    def pop_oldest(self) -> None:
        """Forget the oldest entry, if there is one."""
        if self._head == len(self._entries):
            return
        self._entries[self._head] = _EVICTED
        self._head += 1
        if self._head >= _COMPACT_AT and self._head * 2 >= len(self._entries):
            del self._entries[: self._head]
            del self._last_offsets[: self._head]
            self._head = 0

    def drop_from(self, offset: int) -> None:
        """Forget every entry at or above `offset`: their append failed."""
        index = bisect_left(self._last_offsets, offset, self._head)
        del self._entries[index:]
        del self._last_offsets[index:]

    def drop_below(self, offset: int) -> None:
        """Forget every entry that ends below `offset`: compaction has replaced them."""
        index = bisect_left(self._last_offsets, offset, self._head)
        self._entries[self._head : index] = [_EVICTED] * (index - self._head)
        self._head = index

    def clear(self) -> None:
        self._entries.clear()
        self._last_offsets.clear()
        self._head = 0


def _position(entry: Entry) -> tuple[LedgerId, EntryId]:
    return (_BEHIND_ALL if entry.ledger_id == NO_LEDGER else entry.ledger_id), entry.entry_id


_EVICTED: Final = Entry(-1, -1, -1, memoryview(b""))


class EntryCache:
    """Keeps the sum of all runs within `bytes_max` by evicting the oldest entries first."""

    __slots__ = ("_order", "bytes_max", "bytes_used", "eviction_count")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self.eviction_count = 0
        # One item for each insertion: (the run, the bytes charged).  An item may outlive its entry, if its run was
        # dropped.  Its bytes are given back when its turn comes, so the sum stays right.
        self._order: deque[tuple[CachedRun, int]] = deque()

    def entry_count(self) -> int:
        """Entries that were inserted and not yet evicted."""
        return len(self._order)

    def insert(self, run: CachedRun, entry: Entry) -> None:
        charge = len(entry.payload) + ENTRY_OVERHEAD_BYTES
        run.push(entry)
        self._order.append((run, charge))
        used = self.bytes_used + charge
        while used > self.bytes_max and self._order:
            oldest, freed = self._order.popleft()
            oldest.pop_oldest()
            used -= freed
            self.eviction_count += 1
        self.bytes_used = used
