"""Segment files for other processes: the store to which they belong, how far each can be read, and where to begin.

The answers come from the ledgers' state in memory, without a read from the disk.  Only the index of a finished
segment may have to be read, in a thread; a thinned index stays in memory (`CUT_BYTES`).

**What may be read of a file that is still written.**  Everything below `LocalLedger.flushed_position`.  The write up
to there has returned.  Later writes begin at the last block that is not full, and write it again with the same bytes
before the new ones.  Such a file is best read past the page cache, because it is written in that way.  After a crash
the journal is replayed from the position noted in the catalogue, which writes the same bytes to the same places.
"""

import asyncio
import os
import uuid
from array import array
from bisect import bisect_left
from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol

from magnetar.base import randomness
from magnetar.base.errors import LedgerNotFound, StorageError
from magnetar.storage.local.disk import Disk
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.leases import Leases
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.reads import Reads
from magnetar.storage.local.recovery import load_index
from magnetar.storage.local.writebehind import WriteBehind
from magnetar.storage.segment_format import ID_BYTES, ID_FILE
from magnetar.storage.store import LedgerId, SegmentStat

CUT_BYTES: Final = 4 << 20
THINNED_MAX: Final = 4096  # finished segments whose thinned index is kept: 4 KiB for each GiB of them


def store_id(disk: Disk, data_dir: Path) -> str:
    """Blocking.  The id in the store's directory, which is created if there is none."""
    path = data_dir / ID_FILE
    if ID_FILE in disk.names(data_dir):
        file = disk.open(path)
        try:
            text = bytearray(ID_BYTES)
            file.read(memoryview(text), 0)
        finally:
            file.close()
        try:
            return str(uuid.UUID(text.decode("ascii")))
        except ValueError:
            raise StorageError(f"{path} is damaged: it must hold the id of this store") from None
    made = str(randomness.new_uuid())
    fresh = data_dir / (ID_FILE + ".new")
    file = disk.open(fresh, create=True)
    try:
        file.write(made.encode("ascii"), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(fresh, path)
    disk.sync_directory(data_dir)
    return made


class Thinned:
    """Where stretches of about `CUT_BYTES` begin in a finished segment."""

    __slots__ = ("offsets", "positions")

    def __init__(self, index: SparseIndex) -> None:
        self.offsets: array[int] = array("q")
        self.positions: array[int] = array("q")
        number = 0
        while number < len(index):
            position = index.positions[number]
            self.offsets.append(index.offsets_before[number])
            self.positions.append(position)
            number = bisect_left(index.positions, position + CUT_BYTES, number + 1)


class SegmentStore(Protocol):
    """The store to which the segments belong, as this module uses it."""

    loop: asyncio.AbstractEventLoop
    segments: Path
    failure: StorageError | None
    leases: Leases
    behind: WriteBehind
    reads: Reads

    def find(self, ledger_id: int) -> LocalLedger | None: ...
    def path_of(self, ledger: LocalLedger) -> Path: ...
    async def index_of(self, ledger: LocalLedger) -> SparseIndex: ...


class LocalSegments:
    """Implements `SegmentFiles` for a `LocalLedgerStore`."""

    def __init__(self, store: SegmentStore, own_id: str) -> None:
        self._store = store
        self._store_id = own_id
        self._directory = os.path.abspath(
            store.segments
        )  # absolute, for processes with other working directories
        self._thinned: OrderedDict[int, Thinned] = OrderedDict()

    @property
    def store_id(self) -> str:
        return self._store_id

    @property
    def leases(self) -> Leases:
        return self._store.leases

    def stat(self, ledger_id: LedgerId) -> SegmentStat | None:
        ledger = self._store.find(ledger_id)
        if ledger is None:
            return None
        empty = ledger.flushed_count == 0
        return SegmentStat(
            os.path.join(self._directory, self._store.path_of(ledger).name),
            ledger.finished,
            ledger.flushed_position,
            ledger.flushed_count,
            -1 if empty else ledger.flushed_last_offset,
            -1 if empty else ledger.flushed_max_timestamp,
        )

    async def write_out(self, ledger_id: LedgerId) -> None:
        ledger = self._store.find(ledger_id)
        if ledger is None:
            return
        behind = self._store.behind
        target = ledger.position
        while (
            ledger.flushed_position < target
            and not behind.stuck
            and not ledger.deleted
            and self._store.failure is None
        ):
            under_way = behind.flush([ledger])
            await (under_way if under_way is not None else behind.worker.run(_nothing))

    async def find_cuts(
        self, ledger_id: LedgerId, from_offset: int, to_offset: int, step_bytes: int
    ) -> tuple[list[tuple[int, int]], int]:
        ledger = self._store.find(ledger_id)
        if ledger is None:
            raise LedgerNotFound(f"there is no ledger {ledger_id}")
        end = ledger.flushed_position
        last_offset = ledger.flushed_last_offset
        is_whole = from_offset < 0 and last_offset < to_offset
        if is_whole and end <= CUT_BYTES:
            return [(-1, 0)], end
        offsets, positions = await self._columns(ledger, is_whole=is_whole)
        first = max(bisect_left(offsets, from_offset) - 1, 0)
        stop = bisect_left(positions, end)
        if last_offset >= to_offset:
            # Reading ends at the first stretch that has nothing below `to_offset`.
            stop = min(max(bisect_left(offsets, to_offset - 1), first + 1), stop)
        if stop < len(positions):
            end = min(end, positions[stop])
        found = []
        number = first
        while number < stop:
            position = positions[number]
            found.append((offsets[number] + 1 if number else -1, position))
            number = bisect_left(positions, position + step_bytes, number + 1)
        return found, end

    async def _columns(self, ledger: LocalLedger, *, is_whole: bool) -> "tuple[array[int], array[int]]":
        """Two columns of a ledger's index: the offset before each stretch, and its position."""
        index = ledger.index
        if index is None and is_whole and ledger.finished:
            thinned = self._thinned.get(ledger.ledger_id)
            if thinned is None:
                thinned = await self._store.loop.run_in_executor(
                    self._store.reads.pool, self._read_thinned, ledger
                )
                self._thinned[ledger.ledger_id] = thinned
                if len(self._thinned) > THINNED_MAX:
                    self._thinned.popitem(last=False)
            else:
                self._thinned.move_to_end(ledger.ledger_id)
            return thinned.offsets, thinned.positions
        if index is None:
            index = await self._store.index_of(ledger)
        return index.offsets_before, index.positions

    def _read_thinned(self, ledger: LocalLedger) -> Thinned:
        store = self._store
        path = store.path_of(ledger)
        return Thinned(
            load_index(store.reads, path, ledger.ledger_id, ledger.flushed_count, ledger.flushed_position)
        )


def _nothing() -> None:
    return None
