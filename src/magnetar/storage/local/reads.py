"""Reads ledgers: from the dirty entries in memory, or from segments in large verified steps with read-ahead.

A step is a run of whole records between two index points.  One direct read brings it into a recycled buffer, a thread
verifies it, and readers get views of that buffer.  The part of a step that a read leaves is *parked* under the entry
that comes next.  The read that continues there finds it, and finds the next step under way.  Most readers come back,
but none has to.  So parked steps, with the objects of their entries, have a limit, a share of `memory_bytes`; above
it the one that was parked first is dropped.  The rest of `memory_bytes` is for the steps with which readers begin
(`first_steps.py`).
"""

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from magnetar.base.arena import Arena
from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.base.thread_time import counted
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.crew import start_all
from magnetar.storage.local.damage import Damage
from magnetar.storage.local.disk import Disk, File
from magnetar.storage.local.first_steps import FirstSteps
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.kept import Kept
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.segment import Chunk, Damaged, Stretch, read_chunk
from magnetar.storage.segment_format import INDEX_STEP_BYTES
from magnetar.storage.store import EntryId, StoredEntry
from magnetar.wire.stored import RECORD

log = logging.getLogger(__name__)

OPEN_FILES_MAX: Final = 128
PARKED_MAX: Final = 64
FIRST_STEPS_SHARE: Final = 8  # one part in this many of the memory
ENTRY_OVERHEAD_BYTES: Final = 350  # bytes that CPython uses for a StoredEntry and the view of its body


class _Use:
    __slots__ = ("count", "file", "stale")

    def __init__(self, file: File) -> None:
        self.file = file
        self.count = 0
        self.stale = False


class FileTable:
    """Segments open for reading, at most `OPEN_FILES_MAX` of them idle.  Safe to use from any thread."""

    def __init__(self, disk: Disk, *, direct: bool) -> None:
        self._disk = disk
        self._direct = direct
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, _Use] = OrderedDict()

    @contextmanager
    def use(self, path: Path) -> Iterator[File]:
        with self._lock:
            use = self._open.get(path)
            if use is None:
                use = self._open[path] = _Use(self._disk.open(path, direct=self._direct))
            self._open.move_to_end(path)
            use.count += 1
        try:
            yield use.file
        finally:
            with self._lock:
                use.count -= 1
                if use.stale and use.count == 0:
                    use.file.close()
                self._shrink(OPEN_FILES_MAX)

    def forget(self, path: Path) -> None:
        """Close a removed file when its last reader is done."""
        with self._lock:
            use = self._open.pop(path, None)
            if use is not None:
                use.stale = True
                if use.count == 0:
                    use.file.close()

    def close(self) -> None:
        with self._lock:
            self._shrink(0)

    def _shrink(self, count: int) -> None:
        while len(self._open) > count:
            idle = next((path for path, use in self._open.items() if use.count == 0), None)
            if idle is None:
                return
            self._open.pop(idle).file.close()


class _Parked:
    """The place of a sequential reader: inside a chunk, or directly after one, with the next step under way."""

    __slots__ = ("ahead", "chunk", "cost", "position")

    def __init__(
        self, position: int, chunk: Chunk | None, ahead: asyncio.Future[Chunk] | None, cost: int
    ) -> None:
        self.position = position
        self.cost = cost  # bytes that it keeps in memory
        self.chunk = chunk
        self.ahead = ahead


class Reads:
    def __init__(
        self,
        disk: Disk,
        *,
        direct: bool,
        step_bytes: int,
        memory_bytes: int,
        threads: int,
        counters: StoreCounters,
        damage: Damage,
        path_of: Callable[[LocalLedger], Path],
        load_index: Callable[[LocalLedger], asyncio.Future[SparseIndex]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.arena = Arena(memory_bytes)
        self.files = FileTable(disk, direct=direct)
        self._step_bytes = step_bytes
        self._counters = counters
        self._damage = damage
        self._path_of = path_of
        self._load_index = load_index
        self._loop = loop
        self._threads = threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="magnetar-read")
        for_first_steps = memory_bytes // FIRST_STEPS_SHARE
        self._first_steps = FirstSteps(for_first_steps)
        self._parked: Kept[_Parked] = Kept(PARKED_MAX, memory_bytes - for_first_steps)

    async def read(
        self, ledger: LocalLedger, first: int, bytes_max: int, entries_max: int
    ) -> list[StoredEntry]:
        found: list[StoredEntry] = []
        entry_id = max(first, 0)
        room = bytes_max
        while True:
            _check_not_deleted(ledger)
            if entry_id >= ledger.durable_count:
                return found
            if entry_id >= ledger.flushed_count:
                _read_dirty(ledger, entry_id, room, entries_max, found)
                return found
            parked = self._parked.pop((ledger.ledger_id, entry_id))
            chunk = None if parked is None else parked.chunk
            if parked is None or chunk is None:
                try:
                    chunk = await self._next_chunk(ledger, entry_id, room, parked)
                except StorageError:
                    if found:
                        return found
                    raise
            if parked is not None:
                self._read_ahead(ledger, chunk)
            entries = chunk.entries
            for number in range(entry_id - chunk.first, len(entries)):
                entry = entries[number]
                if isinstance(entry, Damaged):
                    if found:
                        return found
                    raise EntryCorrupt(f"entry {entry.entry_id} of ledger {ledger.ledger_id} is damaged")
                size = len(entry.body)
                if found and (size > room or len(found) >= entries_max):
                    self._parked.put((ledger.ledger_id, entry_id), _Parked(0, chunk, None, _cost(chunk)))
                    return found
                room -= size
                found.append(entry)
                entry_id += 1
            if (ledger.ledger_id, entry_id) not in self._parked:
                self._parked.put((ledger.ledger_id, entry_id), _Parked(chunk.end_position, None, None, 0))
            if room <= 0 or len(found) >= entries_max:
                return found

    async def find_offset(self, ledger: LocalLedger, offset: int) -> EntryId | None:
        index = await self._index(ledger)
        return await self._walk(ledger, index, index.stretch_of_offset(offset), 0, offset)

    async def find_timestamp(self, ledger: LocalLedger, timestamp_ms: int) -> EntryId | None:
        index = await self._index(ledger)
        return await self._walk(ledger, index, index.stretch_of_timestamp(timestamp_ms), 1, timestamp_ms)

    def forget(self, ledger: LocalLedger) -> None:
        """Forget what is kept of a deleted ledger."""
        self._parked.forget(ledger.ledger_id)
        self._first_steps.forget(ledger.ledger_id)
        self.files.forget(self._path_of(ledger))

    def prepare(self) -> None:
        """Start the threads.  Raises RuntimeError if the system allows no more threads."""
        start_all(self.pool, self._threads, lambda: None)

    def close(self) -> None:
        self.pool.shutdown(wait=True)
        self._parked.clear()
        self._first_steps.clear()
        self.files.close()

    # -- steps

    async def _index(self, ledger: LocalLedger) -> SparseIndex:
        return ledger.index if ledger.index is not None else await self._load_index(ledger)

    async def _next_chunk(
        self, ledger: LocalLedger, entry_id: int, room: int, parked: _Parked | None
    ) -> Chunk:
        if parked is not None and parked.ahead is not None:
            return await parked.ahead
        index = await self._index(ledger)
        if parked is not None:
            return await self._load(
                ledger, self._plan(ledger, index, entry_id, parked.position, self._step_bytes)
            )
        # Which entry is the last that fits is known only after the read: read one index step more than was asked for.
        step = min(room + INDEX_STEP_BYTES, self._step_bytes)
        return await self._begin(ledger, index, index.stretch_of_entry(entry_id), entry_id, step)

    async def _begin(
        self, ledger: LocalLedger, index: SparseIndex, stretch: int, entry_id: int, step: int
    ) -> Chunk:
        """The step of a reader that has nothing parked, from the index point before `entry_id` on."""
        plan = self._plan(ledger, index, index.entries[stretch], index.positions[stretch], step)
        return await self._first_steps.load(
            ledger.ledger_id, entry_id, plan, _cost(plan), lambda plan: self._load(ledger, plan)
        )

    def _plan(self, ledger: LocalLedger, index: SparseIndex, first: int, position: int, step: int) -> Stretch:
        """Whole records from `first` on: at most `step` bytes, but at least one stretch of the index."""
        low = index.stretch_of_entry(first) + 1
        high = low
        positions = index.positions
        limit = ledger.flushed_position
        while high < len(positions) and positions[high] < limit and positions[high] - position <= step:
            high += 1
        if high < len(positions) and positions[high] < limit and high == low:
            high += 1
        if high == len(positions) or positions[high] >= limit:
            at_limit = limit - position <= step or high == low
        else:
            at_limit = False
        if at_limit:
            end, end_position, inside = ledger.flushed_count, limit, high
        else:
            inside = high - 1
            end, end_position = index.entries[inside], positions[inside]
        marks = [(index.entries[n], positions[n]) for n in range(low, inside)]
        return Stretch(first, end, position, end_position, marks)

    def _load(self, ledger: LocalLedger, stretch: Stretch) -> asyncio.Future[Chunk]:
        self._counters.disk_reads += 1
        self._counters.disk_read_bytes += stretch.end_position - stretch.position
        return self._loop.run_in_executor(
            self.pool, counted(self._load_blocking), self._path_of(ledger), ledger, stretch
        )

    def _load_blocking(self, path: Path, ledger: LocalLedger, stretch: Stretch) -> Chunk:
        try:
            chunk = self._read_blocking(path, ledger.ledger_id, stretch)
        except StorageError as error:
            self._damage.failed(ledger, stretch.first, error)
            raise
        for entry in chunk.entries:
            if isinstance(entry, Damaged):
                self._counters.corrupt_entries += 1
                self._damage.found(ledger, entry.entry_id)
                log.error(
                    "entry damaged: ledger=%d entry=%d file=%s", ledger.ledger_id, entry.entry_id, path.name
                )
        return chunk

    def _read_blocking(self, path: Path, ledger_id: int, stretch: Stretch) -> Chunk:
        try:
            with self.files.use(path) as file:
                return read_chunk(file, self.arena, ledger_id, stretch)
        except FileNotFoundError:
            raise LedgerNotFound(f"ledger {ledger_id} was deleted") from None
        except OSError as error:
            log.error("segment read failed: ledger=%d file=%s error=%s", ledger_id, path.name, error)
            raise StorageError(f"ledger {ledger_id} cannot be read: {error.strerror or error}") from error

    def _read_ahead(self, ledger: LocalLedger, chunk: Chunk) -> None:
        """Start to read the step after `chunk`, unless that is under way or not in the segment yet."""
        index = ledger.index
        if (
            index is None
            or chunk.end >= ledger.flushed_count
            or (ledger.ledger_id, chunk.end) in self._parked
        ):
            return
        stretch = self._plan(ledger, index, chunk.end, chunk.end_position, self._step_bytes)
        ahead = self._load(ledger, stretch)
        ahead.add_done_callback(_consume_error)
        self._parked.put(
            (ledger.ledger_id, chunk.end), _Parked(chunk.end_position, None, ahead, _cost(stretch))
        )

    # -- lookups

    async def _walk(
        self, ledger: LocalLedger, index: SparseIndex, stretch: int, column: int, least: int
    ) -> EntryId | None:
        """The first entry of one stretch of the index whose number in `column` is at least `least`."""
        first = index.entries[stretch]
        end = index.entries[stretch + 1] if stretch + 1 < len(index) else ledger.durable_count
        if end - first == 1:
            return EntryId(first)
        entry_id = first
        while entry_id < end:
            _check_not_deleted(ledger)
            if entry_id >= ledger.flushed_count:
                header = ledger.dirty[entry_id - ledger.flushed_count].header
                if RECORD.unpack(header)[4 + column] >= least:
                    return EntryId(entry_id)
                entry_id += 1
                continue
            chunk = await self._begin(ledger, index, stretch, entry_id, INDEX_STEP_BYTES)
            for entry in chunk.entries[entry_id - first : end - first]:
                numbers = (entry.last_offset, entry.max_timestamp_ms)
                number = numbers[column]
                # An entry with unknown numbers may be the right one, and reading it reports the damage.
                if number is None or number >= least:
                    return EntryId(entry.entry_id)
                entry_id += 1
        return None


def _cost(read: Stretch | Chunk) -> int:
    """How many bytes its chunk keeps in memory, however few are still unread."""
    return read.end_position - read.position + ENTRY_OVERHEAD_BYTES * (read.end - read.first)


def _check_not_deleted(ledger: "LocalLedger") -> None:
    if ledger.deleted:
        raise LedgerNotFound(f"ledger {ledger.ledger_id} was deleted")


def _read_dirty(
    ledger: LocalLedger, entry_id: int, room: int, entries_max: int, found: list[StoredEntry]
) -> None:
    start = entry_id - ledger.flushed_count
    for record in ledger.dirty[start : start + entries_max - len(found)]:
        parts = record.parts
        size, _, _, number, last_offset, timestamp = RECORD.unpack(record.header)
        if size > room and found:
            return
        room -= size
        body = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
        found.append(StoredEntry(EntryId(number), last_offset, timestamp, body))
        if room <= 0:
            return


def _consume_error(future: asyncio.Future[Chunk]) -> None:
    """Ignore the error of a step that was read ahead and that no reader waits for."""
    if not future.cancelled():
        future.exception()
