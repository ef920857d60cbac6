"""The catalogue: which ledgers exist, how far the segments of the open ones reach, and where replay begins.

It is a log of facts in one small file (`format.py` has its bytes).  All calls block, and come from one thread at a
time.

**Torn or damaged.**  A crash may leave an incomplete commit, which is legal: the journal still has what the commit
says.  Only the last commit can be incomplete.  So damage before the beginning of a later commit is no torn tail.
Neither is damage in the file's first part, which was synced before the file got its name.  With such damage the store
does not start.
"""

import logging
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from magnetar.base import randomness
from magnetar.base.errors import StorageError
from magnetar.storage.local.disk import Disk, File
from magnetar.storage.local.format import (
    CATALOGUE_HEAD,
    CATALOGUE_MAGIC,
    CATALOGUE_MAGIC_1,
    FACT,
    FACT_BYTES,
    FACT_BYTES_MAX,
    FACT_START,
    FactKind,
    catalogue_head,
    fact,
)
from magnetar.storage.segment_format import POINT_BYTES, segment_name

log = logging.getLogger(__name__)

REWRITE_SLACK_BYTES: Final = 1 << 20
KINDS: Final = frozenset(FactKind)


class Fact(NamedTuple):
    """The newest fact about one ledger."""

    kind: FactKind
    ledger_id: int
    entry_count: int
    data_bytes: int
    last_offset: int
    max_timestamp_ms: int
    points: bytes
    """Index points that the ledger has gained since its last fact."""


class Known:
    """The content of a catalogue."""

    __slots__ = (
        "deleted",
        "facts",
        "journal_epoch",
        "journal_salt",
        "journal_sequence",
        "live_bytes",
        "next_ledger_id",
    )

    def __init__(self) -> None:
        self.facts: dict[int, tuple[Fact, list[bytes]]] = {}
        """By ledger: its newest fact, and the index points of all its facts."""
        self.deleted: set[int] = set()
        """Deleted ledgers whose segment files may still exist: no other file is ever removed."""
        self.next_ledger_id = 1
        self.journal_sequence = 0
        """Replay begins after this round."""
        self.journal_epoch = 0
        """The newest epoch of a journal file at the time of the note; 0 if there is no note."""
        self.journal_salt = 0
        """The salt of the journal's rounds; 0 before version 2."""
        self.live_bytes = 0

    def after(self, lines: Iterable[Fact]) -> "Known":
        """A copy with `lines` applied."""
        other = Known()
        other.facts = dict(self.facts)
        other.deleted = set(self.deleted)
        other.next_ledger_id = self.next_ledger_id
        other.journal_sequence = self.journal_sequence
        other.journal_epoch = self.journal_epoch
        other.journal_salt = self.journal_salt
        other.live_bytes = self.live_bytes
        for line in lines:
            other.apply(line)
        return other

    def apply(self, line: Fact) -> None:
        if line.kind is FactKind.CHECKPOINT:
            self.journal_sequence = line.entry_count
            self.next_ledger_id = line.ledger_id
            self.journal_epoch = max(line.last_offset, 0)
            self.journal_salt = max(line.max_timestamp_ms, 0)
            return
        old = self.facts.pop(line.ledger_id, None)
        if old is not None:
            self.live_bytes -= FACT_BYTES + sum(map(len, old[1]))
        if line.ledger_id in self.deleted:
            self.forget([line.ledger_id])
        if line.kind is FactKind.DELETED:
            self.deleted.add(line.ledger_id)
            self.live_bytes += FACT_BYTES
            return
        points = [] if line.kind is FactKind.SEALED else [*(old[1] if old else []), line.points]
        if len(points) > 16:
            points = [b"".join(points)]
        self.facts[line.ledger_id] = (line._replace(points=b""), points)
        self.live_bytes += FACT_BYTES + sum(map(len, points))

    def forget(self, deleted: Iterable[int]) -> None:
        """Forget deleted ledgers whose segment files are gone, also after a loss of power."""
        gone = self.deleted.intersection(deleted)
        self.deleted -= gone
        self.live_bytes -= FACT_BYTES * len(gone)


class CatalogueView(NamedTuple):
    """What a read of a catalogue's file has found."""

    known: Known
    """From the whole lines before `position`."""
    version: int
    position: int
    """Where the first line begins that is not whole; the file's size if all are whole."""
    is_damaged: bool
    """Whether the part that is not whole is damage, and not only a torn tail."""


def read_catalogue(data: memoryview) -> CatalogueView | None:
    """The content of a file; None if it does not begin like a catalogue."""
    magic = bytes(data[: len(CATALOGUE_MAGIC)])
    if magic == CATALOGUE_MAGIC_1:
        version, base, position = 1, 0, len(CATALOGUE_MAGIC_1)
    elif magic == CATALOGUE_MAGIC and len(data) >= CATALOGUE_HEAD.size:
        _, base, crc = CATALOGUE_HEAD.unpack_from(data)
        if crc != crc32c(data[: CATALOGUE_HEAD.size - 4]):
            return None
        version, position = 2, CATALOGUE_HEAD.size
    else:
        return None
    known = Known()
    while position < len(data) and (line := parse_fact(data, position)) is not None:
        known.apply(line)
        position += FACT_BYTES + len(line.points)
    is_damaged = position < base
    if position < len(data) and not is_damaged:
        behind = _checkpoints_behind(data, position)
        # Version 1 does not note where a commit begins: only a second checkpoint surely belongs to a later commit.
        is_damaged = any(begin > position for begin in behind) or (version == 1 and len(behind) > 1)
    return CatalogueView(known, version, position, is_damaged)


def parse_fact(data: memoryview, position: int) -> Fact | None:
    """The line at `position`; None if there is no whole line."""
    if position + FACT_BYTES > len(data):
        return None
    length, crc = FACT_START.unpack_from(data, position)
    if (length - FACT.size) % POINT_BYTES or data[position + FACT_START.size] not in KINDS:
        return None
    rest = data[position + FACT_START.size : position + FACT_START.size + length]
    if not FACT.size <= length <= FACT_BYTES_MAX or len(rest) < length or crc32c(rest) != crc:
        return None
    kind, ledger_id, count, data_bytes, last_offset, timestamp = FACT.unpack_from(rest)
    points = bytes(rest[FACT.size :])
    return Fact(FactKind(kind), ledger_id, count, data_bytes, last_offset, timestamp, points)


def _checkpoints_behind(data: memoryview, position: int) -> list[int]:
    """The beginnings of the commits whose last line is somewhere after `position`, and whole."""
    found = []
    whole = bytes(data[position:])
    length = FACT.size.to_bytes(4, "big")
    at = whole.find(length)
    while at >= 0:
        line = parse_fact(data, position + at)
        if line is not None and line.kind is FactKind.CHECKPOINT:
            found.append(line.data_bytes)
        at = whole.find(length, at + 1)
    return found


class Catalogue:
    def __init__(self, disk: Disk, path: Path) -> None:
        """`path` is the catalogue's file; the segments are in the folder `segments` beside it."""
        self._disk = disk
        self._path = path
        self._segments = path.with_name("segments")
        self._file: File | None = None
        self._size = 0
        self._doubtful = False
        """The file may hold more than `_size` bytes, and no line may be written after these."""
        self._misplaced = False
        """A new file may have the name already: lines that are written to the old one might then be lost."""
        self.known = Known()

    @property
    def facts(self) -> dict[int, tuple[Fact, list[bytes]]]:
        """By ledger: its newest fact, and the index points of all its facts."""
        return self.known.facts

    def load(self) -> None:
        """Read the file, or create one.  Raises StorageError if it is damaged, or no catalogue."""
        self._disk.remove(self._path.with_suffix(".new"))
        try:
            self._file = self._disk.open(self._path)
        except FileNotFoundError:
            self._begin()
            return
        size = self._file.size()
        data = memoryview(bytearray(size))
        self._file.read(data, 0)
        # A killed process may have left a commit that only the page cache has.  Journal files would be used again
        # because of it, and then the next loss of power would undo it.
        self._file.sync()
        view = read_catalogue(data)
        if view is None:
            raise StorageError(
                f"the catalogue {self._path} is damaged at byte 0: it does not begin as one of this version does"
            )
        if view.is_damaged:
            raise StorageError(
                f"the catalogue {self._path} is damaged at byte {view.position} of {size}: what stands behind that was"
                f" whole when it was written; magnetar doctor --data-dir {self._path.parent} shows what is left"
            )
        if view.position < size:
            log.warning("catalogue cut at its torn tail: position=%d size=%d", view.position, size)
            self._doubtful = True
        self.known = view.known
        self._size = view.position
        if not self.known.journal_salt:
            self._begin()

    def _begin(self) -> None:
        self.known.journal_salt = randomness.bits(62) + 1
        self._rewrite(self.known)

    def commit(
        self, facts: list[Fact], journal_sequence: int, next_ledger_id: int, journal_epoch: int
    ) -> None:
        """Make `facts` durable, and with them that replay begins after `journal_sequence`.

        After an OSError the store does not know what has changed, so the next commit writes a new file.  A start must
        not read what the failed call has left in this one.
        """
        assert self._file is not None
        if self._misplaced:
            raise StorageError("the catalogue could not be put in its place; the next start can")
        salt = self.known.journal_salt
        lines = [*facts, _closing(journal_sequence, next_ledger_id, journal_epoch, salt, self._size)]
        if self._doubtful:
            known = self.known.after(lines)
            self._rewrite(known, facts)
            self.known = known
            return
        data = b"".join([fact(*line) for line in lines])
        self._doubtful = True
        self._file.write(data, self._size)
        self._file.sync()
        self._doubtful = False
        self._size += len(data)
        for line in lines:
            self.known.apply(line)
        if self._size > 2 * self.known.live_bytes + REWRITE_SLACK_BYTES:
            try:
                self._rewrite(self.known, facts)
            except OSError as error:
                # The commit itself is durable; only the rewrite failed, so the file stays larger than necessary.
                log.warning("the catalogue could not be rewritten: size=%d error=%s", self._size, error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewrite(self, known: Known, newest: Iterable[Fact] = ()) -> None:
        """Write all current facts into a new file, and put it in the place of the old one.

        Ledgers that `newest` reports as deleted are not forgotten yet: a flush that is under way may create their
        files.
        """
        known.forget(self._durably_gone(known.deleted.difference(line.ledger_id for line in newest)))
        temporary = self._path.with_suffix(".new")
        data = whole_catalogue(known)
        self._disk.remove(temporary)
        file = self._disk.open(temporary, create=True)
        try:
            file.write(data, 0)
            file.sync()
            self._misplaced = True
            self._disk.rename(temporary, self._path)
            self._disk.sync_directory(self._path.parent)
            self._misplaced = False
        except BaseException:
            file.close()
            raise
        self.close()
        self._file = file
        self._size = len(data)
        self._doubtful = False

    def _durably_gone(self, deleted: Collection[int]) -> list[int]:
        """Those of these deleted ledgers that have no segment file, and will have none after a loss of power."""
        if not deleted:
            return []
        there = set(self._disk.names(self._segments))
        gone = [ledger_id for ledger_id in deleted if segment_name(ledger_id) not in there]
        if gone:
            # A removal is not synced at once: a name that is gone may come back until the directory is synced.
            self._disk.sync_directory(self._segments)
        return gone


def _closing(journal_sequence: int, next_ledger_id: int, journal_epoch: int, salt: int, begin: int) -> Fact:
    return Fact(FactKind.CHECKPOINT, next_ledger_id, journal_sequence, begin, journal_epoch, salt, b"")


def whole_catalogue(known: Known) -> bytes:
    """A new file's content."""
    lines = [fact(*line._replace(points=b"".join(points))) for line, points in known.facts.values()]
    lines += [fact(FactKind.DELETED, ledger_id, 0, 0, 0, 0, b"") for ledger_id in sorted(known.deleted)]
    closing = _closing(
        known.journal_sequence,
        known.next_ledger_id,
        known.journal_epoch,
        known.journal_salt,
        CATALOGUE_HEAD.size,
    )
    body = b"".join([*lines, fact(*closing)])
    return catalogue_head(CATALOGUE_HEAD.size + len(body)) + body


def points_count(points: list[bytes]) -> int:
    return sum(map(len, points)) // POINT_BYTES
