"""Writes and reads segment files: plain functions that block, for the flusher's and the readers' threads."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.arena import Arena, map_memory
from magnetar.base.errors import EntryCorrupt
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.disk import Disk, File
from magnetar.storage.segment_format import (
    POINT_BYTES,
    TRAILER,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    VERSION,
    segment_ledger,
)
from magnetar.storage.store import Buffer, EntryId, StoredEntry
from magnetar.wire.stored import RECORD, RECORD_BYTES

STAGING_BYTES: Final = 1 << 20
# A synced write of the journal waits for the piece that is under way.  In a short run latency matters more than
# throughput, so its pieces are small.
RUN_BYTES_SHORT: Final = 2 << 20
PIECE_BYTES_SHORT: Final = 256 << 10
JOIN_BYTES_MAX: Final = 16 * 1024  # smaller pieces are joined before they are copied: fewer steps in Python


class Dirty(NamedTuple):
    """An acknowledged entry that is not in its segment yet, and what is known about the ledger up to it."""

    header: bytes
    parts: Sequence[Buffer]
    last_offset: int
    max_timestamp_so_far: int


class Staging:
    """The aligned buffer through which a flusher writes everything."""

    def __init__(self, disk: Disk, *, direct: bool) -> None:
        self.disk = disk
        self.direct = direct
        self.buffer = memoryview(map_memory(STAGING_BYTES))

    @contextlib.contextmanager
    def open(self, path: Path, *, create: bool = False) -> Iterator[File]:
        file = self.disk.open(path, create=create, direct=self.direct)
        try:
            yield file
        finally:
            file.close()

    def read_block(self, file: File, position: int, count: int) -> bytes:
        """The first `count` bytes of the block at `position`."""
        filled = file.read(self.buffer[:BLOCK_BYTES], position)
        if filled < count:
            raise EntryCorrupt(f"a segment ends at byte {position + filled}, {position + count} were synced")
        return bytes(self.buffer[:count])

    def check_owner(self, file: File, path: Path) -> None:
        """Check that what is about to be written does not go into another ledger's segment: an operator, or a tool,
        may have exchanged files.  Damage proves nothing.

        Raises:
            EntryCorrupt: the file's first record is whole, and another ledger's.
        """
        filled = file.read(self.buffer[:BLOCK_BYTES], 0)
        if filled < RECORD_BYTES:
            return
        length, crc, owner, _, _, _ = RECORD.unpack_from(self.buffer)
        end = RECORD_BYTES + length
        if owner == segment_ledger(path.name) or align_up(end) > len(self.buffer):
            return
        if file.read(self.buffer[: align_up(end)], 0) >= end and crc32c(self.buffer[8:end]) == crc:
            raise EntryCorrupt(
                f"{path.name} has the entries of ledger {owner}, and nothing is written over them: stop the server,"
                " and put the right file back"
            )

    def write_run(
        self, file: File, position: int, rest: bytes, pieces: Iterator[Buffer], run_bytes: int
    ) -> bytes:
        """Write `pieces` (`run_bytes` in all) one after the other from `position` on.

        Returns the content of the last, partial block.  `rest` is the content of the first block before `position`:
        it is written again, in the same place, unchanged.
        """
        buffer = self.buffer
        full = PIECE_BYTES_SHORT if run_bytes <= RUN_BYTES_SHORT else STAGING_BYTES
        used = len(rest)
        base = position - used
        assert base % BLOCK_BYTES == 0
        buffer[:used] = rest
        for piece in _joined(pieces):
            start = 0
            size = len(piece)
            while start < size:
                count = min(size - start, full - used)
                buffer[used : used + count] = piece[start : start + count] if count < size else piece
                used += count
                start += count
                if used == full:
                    file.write(buffer[:full], base)
                    base += used
                    used = 0
        end = align_up(used)
        if end:
            buffer[used:end] = bytes(end - used)
            file.write(buffer[:end], base)
        return bytes(buffer[used - used % BLOCK_BYTES : used])


def _joined(pieces: Iterator[Buffer]) -> Iterator[Buffer]:
    small: list[Buffer] = []
    small_bytes = 0
    for piece in pieces:
        size = len(piece)
        if size < JOIN_BYTES_MAX:
            small.append(piece)
            small_bytes += size
            if small_bytes >= JOIN_BYTES_MAX * 4:
                yield b"".join(small)
                small = []
                small_bytes = 0
        else:
            if small:
                yield b"".join(small)
                small = []
                small_bytes = 0
            yield memoryview(piece)
    if small:
        yield b"".join(small)


def pieces_of(records: Sequence[Dirty]) -> Iterator[Buffer]:
    for record in records:
        yield record.header
        yield from record.parts


@dataclass(slots=True)
class Footer:
    """What a sealed segment says about itself."""

    entry_count: int
    data_bytes: int
    last_offset: int
    max_timestamp_ms: int
    points: bytes


def read_footer(file: File, arena: Arena, ledger_id: int) -> Footer | None:
    """The footer at the end of a sealed segment; None if there is no whole one."""
    size = file.size()
    if size < BLOCK_BYTES or size % BLOCK_BYTES:
        return None
    block = arena.take(BLOCK_BYTES)
    file.read(block, size - BLOCK_BYTES)
    trailer = block[-TRAILER_BYTES:]
    magic, version, _, owner, count, data_bytes, offset, timestamp, points, points_crc, _, crc = (
        TRAILER.unpack(trailer)
    )
    if (magic, version, owner, crc) != (TRAILER_MAGIC, VERSION, ledger_id, crc32c(trailer[:-4])):
        return None
    start = align_up(data_bytes)
    if start + align_up(points * POINT_BYTES + TRAILER_BYTES) != size:
        return None
    whole = arena.take(size - start)
    file.read(whole, start)
    index = bytes(whole[: points * POINT_BYTES])
    if crc32c(index) != points_crc:
        return None
    return Footer(count, data_bytes, offset, timestamp, index)


class Damaged(NamedTuple):
    """Stands in the place of an entry whose bytes are not what was written.

    The numbers are None if even the header is damaged.
    """

    entry_id: int
    last_offset: int | None
    max_timestamp_ms: int | None


class Stretch(NamedTuple):
    """A run of whole records in a segment."""

    first: int
    end: int
    """The entry id after the last one."""
    position: int
    end_position: int
    marks: Sequence[tuple[int, int]]
    """Entry id and position of index points inside, where reading can continue after damage."""


class Chunk(NamedTuple):
    first: int
    end: int
    position: int
    end_position: int
    entries: list[StoredEntry | Damaged]


def read_chunk(file: File, arena: Arena, ledger_id: int, stretch: Stretch) -> Chunk:
    """Read and verify all records of `stretch`.  The bodies are views of one recycled buffer."""
    start = stretch.position - stretch.position % BLOCK_BYTES
    buffer = arena.take(align_up(stretch.end_position) - start)
    filled = file.read(buffer, start)
    view = buffer[stretch.position - start : max(min(stretch.end_position - start, filled), 0)]
    entries: list[StoredEntry | Damaged] = []
    marks = [(stretch.first, stretch.position), *stretch.marks, (stretch.end, stretch.end_position)]
    for (first, position), (end, end_position) in pairwise(marks):
        _parse(
            view, ledger_id, first, end, position - stretch.position, end_position - stretch.position, entries
        )
    return Chunk(stretch.first, stretch.end, stretch.position, stretch.end_position, entries)


def _parse(
    view: memoryview,
    ledger_id: int,
    entry_id: int,
    end: int,
    at: int,
    end_at: int,
    entries: list[StoredEntry | Damaged],
) -> None:
    unpack = RECORD.unpack_from
    limit = min(end_at, len(view))
    while entry_id < end:
        body = at + RECORD_BYTES
        if body <= limit:
            length, crc, owner, number, last_offset, timestamp = unpack(view, at)
            stop = body + length
            if owner == ledger_id and number == entry_id and stop <= limit:
                if crc32c(view[at + 8 : stop]) == crc:
                    entries.append(StoredEntry(EntryId(entry_id), last_offset, timestamp, view[body:stop]))
                else:
                    entries.append(Damaged(entry_id, last_offset, timestamp))
                entry_id += 1
                at = stop
                continue
        # The length or the numbers are wrong, so no record before the next index point can be found.
        entries.extend(Damaged(lost, None, None) for lost in range(entry_id, end))
        return


def scan(
    file: File, arena: Arena, ledger_id: int, data_bytes: int, step: int
) -> Iterator[tuple[int, StoredEntry]]:
    """Every entry with its position, front to back, for a segment whose index is lost.

    Ends at the first damage.
    """
    position = 0
    entry_id = 0
    size = step
    while position < data_bytes:
        start = position - position % BLOCK_BYTES
        buffer = arena.take(min(align_up(size), align_up(data_bytes) - start))
        view = buffer[position - start : min(file.read(buffer, start), data_bytes - start)]
        found: list[StoredEntry | Damaged] = []
        at = 0
        while at + RECORD_BYTES <= len(view):
            stop = at + RECORD_BYTES + RECORD.unpack_from(view, at)[0]
            if stop > len(view):
                break
            _parse(view, ledger_id, entry_id, entry_id + 1, at, stop, found)
            entry = found.pop()
            if isinstance(entry, Damaged):
                return
            yield position + at, entry
            entry_id += 1
            at = stop
        if at:
            position += at
            size = step
        elif len(view) < data_bytes - position and start + len(buffer) <= file.size():
            size *= 2  # not even one record fits; if the file ends too early, none ever will
        else:
            return
