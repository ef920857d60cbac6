"""A segment file, read by its path: for another process, which gets the path from the broker.

It writes nothing.  It verifies only that the file is the right one: the store's id is in a file two directories above
it, and the ledger's id in its first record.  The decoder of records verifies the rest.  For a range of positions it
returns the bytes in large pieces, and the decoder reports where records end:

    with SegmentFile.open(path, store_id, ledger_id) as segment:
        pieces = segment.pieces(start, end)
        while (data := pieces.next()) is not None:
            pieces.consumed(decode(data).consumed)

A piece is valid until the next call of `next`; a decoder that needs its bytes for longer copies them.  If a piece
ends inside a record, the next piece begins with the bytes that the decoder did not consume.

**How it is read.**  Full blocks never change, so they are mapped, and the kernel reads the next piece while this one
is decoded.  Measured on cold data, that is as fast as the disk, and needs neither threads nor copies; later readers
of the same history find it in the page cache.  Only the pages of the range are requested, so no page is cached that
will be written again.  The last block of a file that is still written is read past the page cache, because it is
written in that way.  If memory cannot be mapped, or the kernel cannot fill it in advance, everything is read past the
page cache.  Without filling, an error of the disk would be a signal, not an exception.
"""

import errno
import mmap
import os
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from crc32c import crc32c

from magnetar.base.arena import map_memory
from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.segment_format import ID_BYTES, ID_FILE, TRAILER, TRAILER_BYTES, TRAILER_MAGIC, VERSION
from magnetar.wire.stored import ENTRY_BYTES_MAX, RECORD, RECORD_BYTES

PIECE_BYTES: Final = 4 << 20
_HEADROOM_BYTES: Final = 1 << 20  # a larger rest gets memory of its own
_ASK_BYTES: Final = 1 << 20  # for one call the kernel reads ahead at most the device's largest request
_POPULATE_READ: Final = 22  # Linux 5.14; `mmap` has no name for it


class SegmentFile:
    """An open segment file; `open` creates it, and the caller must close it."""

    def __init__(self, descriptor: int, path: str, *, direct: bool, mapped: bool) -> None:
        self.path = path
        self.mapped = mapped
        self.is_finished = False
        """Whether the file is complete: nothing will be written to it any more."""
        self._descriptor = descriptor
        self._direct = direct

    @classmethod
    def open(cls, path: str, store_id: str, ledger_id: int, *, mapped: bool = True) -> Self:
        """Open the segment of `ledger_id` in the store `store_id`.

        Raises:
            LedgerNotFound: there is no such file.
            StorageError: the file is of another store or ledger, or cannot be read.
        """
        _check_store(path, store_id)
        try:
            descriptor, direct = _open(path)
        except FileNotFoundError:
            raise LedgerNotFound(f"there is no segment file {path}") from None
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error.strerror or error}") from error
        segment = cls(descriptor, path, direct=direct, mapped=mapped)
        try:
            segment._look(ledger_id)
        except BaseException:
            segment.close()
            raise
        return segment

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def pieces(self, start: int, end: int, piece_bytes: int = PIECE_BYTES) -> "Pieces":
        """The bytes from `start` (inclusive), where a record begins, to `end` (exclusive), where one ends.

        Raises:
            EntryCorrupt: the file ends before `end`.
        """
        if not 0 <= start <= end or piece_bytes < BLOCK_BYTES:
            raise ValueError(f"no range of a segment: {start} to {end} in pieces of {piece_bytes} bytes")
        size = self.size()
        if end > size:
            raise EntryCorrupt(f"{self.path} ends at byte {size}, before {end}")
        return Pieces(self, start, end, align_up(piece_bytes))

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def map(self, start: int, end: int) -> mmap.mmap | None:
        """Map the blocks from `start` to `end`, both multiples of a block; None if that is not possible."""
        try:
            mapping = mmap.mmap(
                self._descriptor, end - start, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=start
            )
            mapping.madvise(mmap.MADV_RANDOM)  # nothing is read that was not asked for
            mapping.madvise(_POPULATE_READ, 0, BLOCK_BYTES)
        except OSError:
            return None
        return mapping

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; fewer bytes only at the end of the file.  Both are multiples of
        `BLOCK_BYTES`, and so is the buffer's address.

        Raises:
            StorageError: the disk cannot be read.
        """
        filled = 0
        try:
            while filled < len(buffer):
                count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
                filled += count
                if count == 0 or (self._direct and count % BLOCK_BYTES):
                    break
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: {error.strerror or error}") from error
        return filled

    def _look(self, ledger_id: int) -> None:
        """Check that the file is that ledger's, and read whether it is complete."""
        block = memoryview(map_memory(BLOCK_BYTES))
        if self.read_into(block, 0) < RECORD_BYTES:
            raise StorageError(f"{self.path} is no segment file: it has no record")
        _, _, owner, entry_id, _, _ = RECORD.unpack_from(block)
        if (owner, entry_id) != (ledger_id, 0):
            raise StorageError(
                f"{self.path} is not the segment of ledger {ledger_id}: it begins with another's record"
            )
        size = self.size()
        if size % BLOCK_BYTES == 0 and self.read_into(block, size - BLOCK_BYTES) == BLOCK_BYTES:
            trailer = block[-TRAILER_BYTES:]
            magic, version, _, owner, *_, crc = TRAILER.unpack(trailer)
            self.is_finished = (magic, version, owner, crc) == (
                TRAILER_MAGIC,
                VERSION,
                ledger_id,
                crc32c(trailer[:-4]),
            )


class Pieces:
    """Reads one range of a segment front to back; made by `SegmentFile.pieces`."""

    def __init__(self, segment: SegmentFile, start: int, end: int, piece_bytes: int) -> None:
        self._segment = segment
        self._end = end
        self._piece_bytes = piece_bytes
        self._reader: _MappedReader | _CopyingReader
        first = start - start % BLOCK_BYTES
        stop = align_up(end) if segment.is_finished else end - end % BLOCK_BYTES
        if segment.mapped and stop > first and (mapping := segment.map(first, stop)) is not None:
            self._reader = _MappedReader(mapping, first, start, min(stop, end), piece_bytes)
        else:
            self._reader = _CopyingReader(segment, start, end, piece_bytes)
        self._view: memoryview | None = None

    def next(self) -> memoryview | None:
        """The next piece: the bytes of the last one that were not consumed, and those that follow; None if all are
        consumed.

        Raises:
            EntryCorrupt: the range does not end where a record ends, or its records cannot be decoded.
            StorageError: the disk cannot be read.
        """
        try:
            self._view = self._reader.next()
            if self._view is None and self._reader.position < self._end:
                self._reader = _CopyingReader(
                    self._segment, self._reader.position, self._end, self._piece_bytes
                )
                self._view = self._reader.next()
        except _Damaged as damage:
            raise EntryCorrupt(f"{self._segment.path}: {damage}") from None
        except OSError as error:
            raise StorageError(f"{self._segment.path} cannot be read: {error.strerror or error}") from error
        return self._view

    def consumed(self, count: int) -> None:
        """Note that the decoder has consumed the first `count` bytes of the last piece, which are whole records."""
        assert self._view is not None
        if not 0 <= count <= len(self._view):
            raise ValueError(f"{count} of {len(self._view)} bytes cannot have been consumed")
        self._reader.consumed(count)


class _Damaged(Exception):
    """The bytes do not make sense as records."""


class _MappedReader:
    """Pieces of mapped memory.  It ends with `position` before `stop` if less than a record is left."""

    def __init__(self, mapping: mmap.mmap, first: int, start: int, stop: int, piece_bytes: int) -> None:
        self.position = start
        self._mapping = mapping
        self._memory = memoryview(mapping)
        self._first = first  # where the mapping begins in the file
        self._stop = stop
        self._piece_bytes = piece_bytes
        self._given = start  # where the last piece ended
        self._consumed = 0
        self._asked = first
        self._released = first

    def next(self) -> memoryview | None:
        rest = self._given - self.position
        piece_bytes = self._piece_bytes
        if rest and not self._consumed:
            _check_length(self._memory[self.position - self._first : self._given - self._first])
            piece_bytes = max(piece_bytes, 2 * rest)
        if self._given >= self._stop:
            return None
        begin, stop = self.position, min(self.position + piece_bytes, self._stop)
        self._release(begin)
        self._ask(stop + piece_bytes)
        block = begin - begin % BLOCK_BYTES
        self._mapping.madvise(_POPULATE_READ, block - self._first, align_up(stop) - block)
        self._given = stop
        self._consumed = 0
        return self._memory[begin - self._first : stop - self._first]

    def consumed(self, count: int) -> None:
        self.position += count - self._consumed
        self._consumed = count

    def _ask(self, until: int) -> None:
        """Ask the kernel to read up to `until`."""
        until = min(align_up(until), self._first + len(self._mapping))
        while self._asked < until:
            count = min(_ASK_BYTES, until - self._asked)
            self._mapping.madvise(mmap.MADV_WILLNEED, self._asked - self._first, count)
            self._asked += count

    def _release(self, position: int) -> None:
        """Release this process's memory before `position`; the page cache keeps the pages."""
        position -= position % BLOCK_BYTES
        if position > self._released:
            with suppress(OSError):
                self._mapping.madvise(
                    mmap.MADV_DONTNEED, self._released - self._first, position - self._released
                )
            self._released = position


class _CopyingReader:
    """Pieces read past the page cache, in two buffers that take turns; an unconsumed rest moves to before the bytes
    that follow it.
    """

    def __init__(self, segment: SegmentFile, start: int, end: int, piece_bytes: int) -> None:
        self.position = start
        self._segment = segment
        self._end = end
        self._next = start - start % BLOCK_BYTES  # of the next read
        self._skip = start % BLOCK_BYTES
        self._piece_bytes = min(piece_bytes, align_up(end - self._next))
        room = min(_HEADROOM_BYTES, align_up(end - self._next))
        self._buffers = [memoryview(map_memory(room + self._piece_bytes)) for _ in range(2)]
        self._turn = 0
        self._view = memoryview(b"")
        self._consumed = 0

    def next(self) -> memoryview | None:
        rest = self._view[self._consumed :]
        if len(rest) and not self._consumed:
            _check_length(rest)
        if self._next >= self._end:
            if len(rest):
                raise EntryCorrupt(
                    f"{self._segment.path}: a record lies across byte {self._end}, where one should end"
                )
            return None
        buffer = self._buffers[self._turn]
        self._turn = 1 - self._turn
        room = len(buffer) - self._piece_bytes
        if len(rest) > room:
            # The record is larger than a piece: double the memory until it has room for the whole record.
            room = align_up(len(rest) * 2)
            buffer = memoryview(map_memory(room + self._piece_bytes))
        count = min(self._piece_bytes, align_up(self._end - self._next))
        filled = self._segment.read_into(buffer[room : room + count], self._next)
        stop = min(filled, self._end - self._next)
        if self._next + stop < min(self._next + count, self._end):
            raise EntryCorrupt(f"{self._segment.path} ends at byte {self._next + filled}, before {self._end}")
        start = room + self._skip - len(rest)
        buffer[start : start + len(rest)] = rest
        self._next += count
        self._skip = 0
        self._view = buffer[start : room + stop]
        self._consumed = 0
        return self._view

    def consumed(self, count: int) -> None:
        self.position += count - self._consumed
        self._consumed = count


def _check_length(rest: memoryview) -> None:
    """Raise _Damaged unless the first record really is larger than a piece of which nothing was consumed."""
    if len(rest) >= RECORD_BYTES:
        length = RECORD.unpack_from(rest)[0]
        if length > ENTRY_BYTES_MAX or RECORD_BYTES + length <= len(rest):
            raise _Damaged(f"a record claims {length} bytes, and {len(rest)} could not be decoded")


def _open(path: str) -> tuple[int, bool]:
    """Open a file: its descriptor, and whether it reads past the page cache."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT), True
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    return os.open(path, flags), False


def _check_store(path: str, store_id: str) -> None:
    directory = os.path.dirname(os.path.dirname(path))
    try:
        descriptor = os.open(os.path.join(directory, ID_FILE), os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = os.pread(descriptor, ID_BYTES, 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(
            f"{path} is not to be read here: {directory} has no {ID_FILE} ({error.strerror or error})"
        ) from error
    if found != store_id.encode():
        raise StorageError(
            f"{path} is not to be read here: {directory} belongs to another store than the broker's"
        )
