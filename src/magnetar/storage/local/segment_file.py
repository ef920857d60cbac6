"""A segment file, read by path: what another process does that was told of it by the broker.

Nothing is written here and nothing is verified that a decoder of records verifies again: only that the file is the one
that is meant (the store's id lies two directories above it, the ledger's in its first record).  Of a range of positions
it gives the bytes, in large pieces; where records end is for the decoder to say:

    with SegmentFile.open(path, store_id, ledger_id) as segment:
        pieces = segment.pieces(start, end)
        while (data := pieces.next()) is not None:
            pieces.consumed(decode(data).consumed)

A piece is a view of memory that is used again for the one after the next: whoever needs its bytes for longer copies
them.  What a decoder did not consume, because the piece ends inside a record, begins the next piece.
"""

import errno
import os
from types import TracebackType
from typing import Final, Self

from magnetar.base.arena import map_memory
from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.local.format import BLOCK_BYTES, ENTRY_BYTES_MAX, RECORD, RECORD_BYTES, align_up

ID_FILE: Final = "store-id"
ID_BYTES: Final = 36
PIECE_BYTES: Final = 4 << 20
_HEADROOM_BYTES: Final = 1 << 20  # a rest that is larger gets memory of its own


class SegmentFile:
    """An open segment file; made by `open`, to be closed."""

    def __init__(self, descriptor: int, path: str, *, direct: bool) -> None:
        self._descriptor = descriptor
        self._path = path
        self._direct = direct

    @classmethod
    def open(cls, path: str, store_id: str, ledger_id: int, *, direct: bool = True) -> Self:
        """Open the segment of `ledger_id` in the store `store_id`.

        `direct` reads past the page cache where the file system can.

        Raises:
            LedgerNotFound: there is no such file.
            StorageError: it is another store's or another ledger's file, or it cannot be read.
        """
        _check_store(path, store_id)
        try:
            descriptor, direct = _open(path, direct=direct)
        except FileNotFoundError:
            raise LedgerNotFound(f"there is no segment file {path}") from None
        except OSError as error:
            raise StorageError(f"{path} cannot be opened: {error.strerror or error}") from error
        segment = cls(descriptor, path, direct=direct)
        try:
            segment._check_ledger(ledger_id)
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
        """The bytes from `start`, where a record begins, to `end`, where one ends."""
        if not 0 <= start <= end or piece_bytes < BLOCK_BYTES:
            raise ValueError(f"no range of a segment: {start} to {end} in pieces of {piece_bytes} bytes")
        return Pieces(self, start, end, align_up(piece_bytes))

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
            raise StorageError(f"{self._path} cannot be read: {error.strerror or error}") from error
        return filled

    @property
    def path(self) -> str:
        return self._path

    def _check_ledger(self, ledger_id: int) -> None:
        block = memoryview(map_memory(BLOCK_BYTES))
        if self.read_into(block, 0) < RECORD_BYTES:
            raise StorageError(f"{self._path} is no segment file: it has no record")
        _, _, owner, entry_id, _, _ = RECORD.unpack_from(block)
        if (owner, entry_id) != (ledger_id, 0):
            raise StorageError(
                f"{self._path} is not the segment of ledger {ledger_id}: it begins with another's record"
            )


class Pieces:
    """Reads one range of a segment front to back; made by `SegmentFile.pieces`."""

    def __init__(self, segment: SegmentFile, start: int, end: int, piece_bytes: int) -> None:
        self._segment = segment
        self._end = end
        self._position = start - start % BLOCK_BYTES  # of the next read
        self._skip = start % BLOCK_BYTES
        self._piece_bytes = piece_bytes
        self._buffers = [_buffer(_HEADROOM_BYTES + piece_bytes) for _ in range(2)]
        self._turn = 0
        self._view: memoryview | None = None
        self._consumed = 0

    def next(self) -> memoryview | None:
        """What was not consumed of the last piece and what follows it; None when all is consumed.

        Raises:
            EntryCorrupt: the range does not end where a record ends, or the file is too short for it.
            StorageError: the disk cannot be read.
        """
        rest = self._view[self._consumed :] if self._view is not None else memoryview(b"")
        if self._view is not None and not self._consumed and len(rest) >= RECORD_BYTES:
            _check_length(rest, self._segment.path)
        if self._position >= self._end:
            if len(rest):
                raise EntryCorrupt(
                    f"{self._segment.path}: a record lies across byte {self._end}, where one should end"
                )
            self._view = None
            return None
        buffer = self._buffers[self._turn]
        self._turn = 1 - self._turn
        room = len(buffer) - self._piece_bytes
        if len(rest) > room:
            # A record larger than a piece: the memory doubles until it has room for all of it.
            room = align_up(len(rest) * 2)
            buffer = memoryview(map_memory(room + self._piece_bytes))
        count = min(self._piece_bytes, align_up(self._end - self._position))
        filled = self._segment.read_into(buffer[room : room + count], self._position)
        stop = min(filled, self._end - self._position)
        if self._position + stop < min(self._position + count, self._end):
            raise EntryCorrupt(
                f"{self._segment.path} ends at byte {self._position + filled}, before {self._end}"
            )
        start = room + self._skip - len(rest)
        buffer[start : start + len(rest)] = rest
        self._position += count
        self._skip = 0
        self._view = buffer[start : room + stop]
        self._consumed = 0
        return self._view

    def consumed(self, count: int) -> None:
        """So many bytes of the last piece, whole records, are done with."""
        assert self._view is not None
        if not 0 <= count <= len(self._view):
            raise ValueError(f"{count} of {len(self._view)} bytes cannot have been consumed")
        self._consumed = count


def _check_length(rest: memoryview, path: str) -> None:
    """Nothing of a piece was consumed: either its first record is larger than it, or its length is damaged."""
    length = RECORD.unpack_from(rest)[0]
    if length > ENTRY_BYTES_MAX or RECORD_BYTES + length <= len(rest):
        raise EntryCorrupt(f"{path}: a record claims {length} bytes, and {len(rest)} could not be decoded")


def _buffer(size: int) -> memoryview:
    return memoryview(map_memory(size))


def _open(path: str, *, direct: bool) -> tuple[int, bool]:
    flags = os.O_RDONLY | os.O_CLOEXEC
    if direct:
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
