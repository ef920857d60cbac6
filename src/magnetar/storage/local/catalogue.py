"""The catalogue: which ledgers there are, how far the segments of the open ones reach, and where replay
begins.

A log of facts in one small file (bytes: `format`).  All calls block and come from one thread at a time.
"""

import logging
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.storage.local.disk import Disk, File
from magnetar.storage.local.format import (
    CATALOGUE_MAGIC,
    FACT,
    FACT_BYTES,
    FACT_BYTES_MAX,
    FACT_START,
    NOTHING_BEFORE,
    POINT_BYTES,
    FactKind,
    fact,
)

log = logging.getLogger(__name__)

REWRITE_SLACK_BYTES: Final = 1 << 20


class Fact(NamedTuple):
    """The newest fact about one ledger."""

    kind: FactKind
    ledger_id: int
    entry_count: int
    data_bytes: int
    last_offset: int
    max_timestamp_ms: int
    points: bytes
    """Those gained since the ledger's last fact."""


class Catalogue:
    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._file: File | None = None
        self._size = 0
        self._live_bytes = 0
        self.facts: dict[int, tuple[Fact, list[bytes]]] = {}
        """By ledger: the newest fact, and the points of all of them."""
        self.next_ledger_id = 1
        self.journal_sequence = 0
        """Replay begins behind this round."""

    def load(self) -> None:
        """Read the file, or begin one.  StorageError when it is not a catalogue."""
        self._disk.remove(self._path.with_suffix(".new"))
        try:
            self._file = self._disk.open(self._path)
        except FileNotFoundError:
            self._rewrite()
            return
        size = self._file.size()
        data = memoryview(bytearray(size))
        self._file.read(data, 0)
        if bytes(data[: len(CATALOGUE_MAGIC)]) != CATALOGUE_MAGIC:
            raise StorageError(f"{self._path} is not a catalogue of this version")
        position = len(CATALOGUE_MAGIC)
        while position + FACT_BYTES <= size:
            length, crc = FACT_START.unpack_from(data, position)
            rest = data[position + FACT_START.size : position + FACT_START.size + length]
            if not FACT.size <= length <= FACT_BYTES_MAX or len(rest) < length or crc32c(rest) != crc:
                break
            kind, ledger_id, count, data_bytes, last_offset, timestamp = FACT.unpack_from(rest)
            points = bytes(rest[FACT.size :])
            self._apply(Fact(FactKind(kind), ledger_id, count, data_bytes, last_offset, timestamp, points))
            position += FACT_START.size + length
        if position < size:
            log.warning("catalogue cut at its torn tail: position=%d size=%d", position, size)
            self._file.truncate(position)
            self._file.sync()
        self._size = position

    def commit(self, facts: list[Fact], journal_sequence: int, next_ledger_id: int) -> None:
        """Make `facts` durable, and then that replay begins behind `journal_sequence`."""
        assert self._file is not None
        closing = Fact(
            FactKind.CHECKPOINT, next_ledger_id, journal_sequence, 0, NOTHING_BEFORE, NOTHING_BEFORE, b""
        )
        data = b"".join([fact(*line) for line in [*facts, closing]])
        self._file.write(data, self._size)
        self._file.sync()
        self._size += len(data)
        for line in [*facts, closing]:
            self._apply(line)
        if self._size > 2 * self._live_bytes + REWRITE_SLACK_BYTES:
            self._rewrite()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _apply(self, line: Fact) -> None:
        if line.kind is FactKind.CHECKPOINT:
            self.journal_sequence = line.entry_count
            self.next_ledger_id = line.ledger_id
            return
        old = self.facts.pop(line.ledger_id, None)
        if old is not None:
            self._live_bytes -= FACT_BYTES + sum(map(len, old[1]))
        if line.kind is FactKind.DELETED:
            return
        points = [] if line.kind is FactKind.SEALED else [*(old[1] if old else []), line.points]
        if len(points) > 16:
            points = [b"".join(points)]
        self.facts[line.ledger_id] = (line._replace(points=b""), points)
        self._live_bytes += FACT_BYTES + sum(map(len, points))

    def _rewrite(self) -> None:
        """Write all that is true into a new file and put it in the old one's place."""
        temporary = self._path.with_suffix(".new")
        lines = [fact(*line._replace(points=b"".join(points))) for line, points in self.facts.values()]
        lines.append(fact(FactKind.CHECKPOINT, self.next_ledger_id, self.journal_sequence))
        data = CATALOGUE_MAGIC + b"".join(lines)
        self._disk.remove(temporary)
        file = self._disk.open(temporary, create=True)
        try:
            file.write(data, 0)
            file.sync()
            self._disk.rename(temporary, self._path)
            self._disk.sync_directory(self._path.parent)
        except BaseException:
            file.close()
            raise
        self.close()
        self._file = file
        self._size = len(data)


def points_count(points: list[bytes]) -> int:
    return sum(map(len, points)) // POINT_BYTES
