"""Finds what can be kept of a store's files, whatever has happened to them.

`Examined` reads the catalogue and the journal as a start would, but continues after damage: `ledgers` is what the
store will have once `repair` has repaired it.  This module writes nothing.

**What is kept of a damaged journal.**  Every whole round counts, in the order of the rounds' numbers, and so does a
round with one wrong bit, which is turned back.  A ledger takes
the entries that follow those that it has.  So it loses its entries in the damaged rounds, and all its later ones; a
ledger without entries in these rounds loses nothing.  If the creation of a ledger is lost, it is created again if its
entries are there from the first on.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar.base.arena import Arena
from magnetar.storage.local.catalogue import CatalogueView, Fact, Known, parse_fact, read_catalogue
from magnetar.storage.local.disk import Disk
from magnetar.storage.local.format import FACT_BYTES, Control, FactKind, control_record
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.replay import Damage, Survey, Torn, Whole, survey, walk
from magnetar.storage.local.rounds import Record
from magnetar.storage.local.segment import read_footer, scan
from magnetar.storage.segment_format import NOTHING_BEFORE, segment_ledger
from magnetar.wire.stored import RECORD_BYTES

SCAN_BYTES: Final = 1 << 20


@dataclass(slots=True)
class LedgerState:
    """A ledger as the repaired store will have it."""

    entry_count: int
    last_offset: int
    in_segment: int = 0
    """How many entries its segment surely has."""
    data_bytes: int = 0
    is_sealed: bool = False
    missing_entry: int | None = None
    """The first lost entry, if there are others after it."""
    cut_off: int = 0
    """How many whole entries follow a missing one, and cannot be kept."""


@dataclass(slots=True)
class FileState:
    """A file of the journal."""

    name: str
    epoch: int
    size_bytes: int
    round_count: int = 0
    first_round: int = 0
    last_round: int = 0


class Examined:
    """Reads everything except the entries in segments; `examine` creates it."""

    def __init__(self, disk: Disk, data_dir: Path, *, distrusts_catalogue: bool = False) -> None:
        self._distrusts_catalogue = distrusts_catalogue
        self.disk = disk
        self.data_dir = data_dir
        self.segments = _segments_of(disk, data_dir / "segments")
        self.catalogue_size = 0
        self.catalogue: CatalogueView | None = None
        """None if there is no file that begins like a catalogue."""
        self.has_catalogue = "catalogue" in disk.names(data_dir)
        self.known = self._known()
        self.journal: Survey = survey(disk, data_dir / "journal", self.known)
        if self.catalogue is None:
            self._begin_without_checkpoint()
        self.ledgers: dict[int, LedgerState] = {}
        self.files = {
            file.path.name: FileState(file.path.name, file.epoch, file.size) for file in self.journal.files()
        }
        self.damage: list[Damage] = []
        self.torn: list[Torn] = []
        self.kept: list[list[bytes | memoryview]] = []
        """The records to keep, round by round, in the form in which they are written again."""
        self.kept_records = 0
        self.rounds_behind = 0
        self.records_behind = 0
        """How many records whole rounds after the first damage have; `rounds_behind` counts these rounds."""
        self._deleted: set[int] = set()
        self._has_gaps = False
        """Whether entries in whole rounds do not follow those that their ledgers have."""
        self._take_ledgers()
        self._take_journal()

    @property
    def is_catalogue_damaged(self) -> bool:
        if self.catalogue is None:
            return self.has_catalogue or bool(self.segments) or bool(self.journal.uses)
        return self.catalogue.is_damaged or self._distrusts_catalogue

    @property
    def is_catalogue_behind(self) -> bool:
        """Whether the last commit is not whole although it was completed: the journal no longer has what it said."""
        return (
            self.catalogue is not None
            and self.catalogue.position < self.catalogue_size
            and bool(self.damage)
            and self.damage[0].mended is None
            and self.damage[0].first_sequence == self.known.journal_sequence + 1
        )

    @property
    def is_journal_damaged(self) -> bool:
        return bool(self.damage or self.journal.cut) or self._has_gaps

    @property
    def unknown_segments(self) -> list[int]:
        """Ledgers that have segments, but whose creation neither the catalogue nor the journal has: it is lost."""
        deleted = self.known.deleted | self._deleted
        return sorted(one for one in self.segments if one not in self.ledgers and one not in deleted)

    def close(self) -> None:
        for file in self.journal.files():
            file.file.close()

    # -- the catalogue

    def _known(self) -> Known:
        if not self.has_catalogue:
            return self._from_segments(Known())
        file = self.disk.open(self.data_dir / "catalogue")
        try:
            data = memoryview(bytearray(file.size()))
            file.read(data, 0)
        finally:
            file.close()
        self.catalogue_size = len(data)
        view = self.catalogue = read_catalogue(data)
        if view is not None and not view.is_damaged and not self._distrusts_catalogue:
            return view.known
        lines = _whole_lines(data)
        deleted = {line.ledger_id for line in lines if line.kind is FactKind.DELETED}
        return self._from_segments(Known().after(lines), deleted)

    def _from_segments(self, known: Known, deleted: Collection[int] = ()) -> Known:
        """The content of a damaged catalogue, completed from the segments themselves.

        Each segment makes a ledger, unless the ledger is known to be deleted; a ledger too many does no harm.
        """
        arena = Arena(SCAN_BYTES * 4)
        lines = []
        for ledger_id, (line, _) in known.facts.items():
            if ledger_id not in self.segments and line.data_bytes:
                # The ledger was deleted, and that fact is lost: a file is never removed in another way.
                lines.append(Fact(FactKind.DELETED, ledger_id, 0, 0, 0, 0, b""))
        for ledger_id, path in self.segments.items():
            noted = known.facts.get(ledger_id)
            if (noted is not None and noted[0].kind is FactKind.SEALED) or ledger_id in deleted:
                continue
            line = self._line_of(ledger_id, path, arena)
            if noted is None or line.data_bytes >= noted[0].data_bytes:
                # Use the index points of the whole file, because some of the noted ones may be lost.
                lines += [Fact(FactKind.DELETED, ledger_id, 0, 0, 0, 0, b""), line]
        known = known.after(lines)
        known.next_ledger_id = max([known.next_ledger_id, *(ledger_id + 1 for ledger_id in self.segments)])
        return known

    def _line_of(self, ledger_id: int, path: Path, arena: Arena) -> Fact:
        """The fact that a catalogue would have about a segment."""
        file = self.disk.open(path)
        try:
            footer = read_footer(file, arena, ledger_id)
            if footer is not None:
                return Fact(
                    FactKind.SEALED,
                    ledger_id,
                    footer.entry_count,
                    footer.data_bytes,
                    footer.last_offset,
                    footer.max_timestamp_ms,
                    b"",
                )
            index = SparseIndex()
            offset = timestamp = NOTHING_BEFORE
            count = end = 0
            for position, entry in scan(file, arena, ledger_id, file.size(), SCAN_BYTES):
                if index.wants_point(position):
                    index.add(entry.entry_id, position, offset, timestamp)
                offset = entry.last_offset
                timestamp = max(timestamp, entry.max_timestamp_ms)
                count += 1
                end = position + RECORD_BYTES + len(entry.body)
            return Fact(
                FactKind.PROGRESS, ledger_id, count, end, offset, timestamp, index.to_bytes(0, len(index))
            )
        finally:
            file.close()

    def _begin_without_checkpoint(self) -> None:
        """Begin without a catalogue: all rounds in the journal count, and the segments themselves show what they
        have.
        """
        uses = self.journal.uses
        if uses and not self.known.journal_sequence:
            self.known.journal_sequence = uses[0].first_sequence - 1
            self.known.journal_salt = uses[-1].head.salt

    # -- the journal

    def _take_ledgers(self) -> None:
        for ledger_id, (line, _) in self.known.facts.items():
            self.ledgers[ledger_id] = LedgerState(
                line.entry_count,
                line.last_offset,
                line.entry_count,
                line.data_bytes,
                line.kind is FactKind.SEALED,
            )

    def _take_journal(self) -> None:
        for item in walk(self.journal, self.known):
            if isinstance(item, Damage):
                if item.mended is not None:
                    self._take_round(item.mended)
                self.damage.append(item)
            elif isinstance(item, Torn):
                self.torn.append(item)
            else:
                self._take_round(item)

    def _take_round(self, item: Whole) -> None:
        file = self.files[item.use.file.path.name]
        file.round_count += 1
        file.first_round = file.first_round or item.head.sequence
        file.last_round = item.head.sequence
        if self.damage and item.records:
            self.rounds_behind += 1
            self.records_behind += len(item.records)
        kept: list[bytes | memoryview] = []
        for record in item.records:
            if self._takes(record, kept):
                kept += [record.header, record.body]
                self.kept_records += 1
        if kept:
            self.kept.append(kept)

    def _takes(self, record: Record, kept: list[bytes | memoryview]) -> bool:
        ledger_id, entry_id = record.ledger_id, record.entry_id
        ledger = self.ledgers.get(ledger_id)
        match entry_id:
            case Control.CREATE:
                self.ledgers.setdefault(ledger_id, LedgerState(0, NOTHING_BEFORE))
                return True
            case Control.DELETE:
                self.ledgers.pop(ledger_id, None)
                self._deleted.add(ledger_id)
                return True
            case Control.CUT:
                is_so = ledger is None or ledger.entry_count == record.last_offset
                self._has_gaps |= not is_so
                return ledger is not None and is_so
            case _:
                if ledger is None and entry_id == 0 and self._may_be_new(ledger_id):
                    ledger = self.ledgers[ledger_id] = LedgerState(0, NOTHING_BEFORE)
                    kept.append(control_record(ledger_id, Control.CREATE))
                if ledger is None or entry_id < ledger.entry_count:
                    return False
                if entry_id > ledger.entry_count:
                    if ledger.missing_entry is None:
                        ledger.missing_entry = ledger.entry_count
                    ledger.cut_off += 1
                    self._has_gaps = True
                    return False
                ledger.entry_count += 1
                ledger.last_offset = record.last_offset
                return True

    def _may_be_new(self, ledger_id: int) -> bool:
        """Whether the round that created the ledger may be lost."""
        if ledger_id in self._deleted or ledger_id in self.known.deleted:
            return False
        return self.is_catalogue_damaged or any(damage.mended is None for damage in self.damage)


def examine(disk: Disk, data_dir: Path) -> Examined:
    """Read the files of a stopped store.  Raises OSError if they cannot be read."""
    examined = Examined(disk, data_dir)
    if examined.is_catalogue_behind:
        examined.close()
        examined = Examined(disk, data_dir, distrusts_catalogue=True)
    return examined


def _segments_of(disk: Disk, directory: Path) -> dict[int, Path]:
    return {
        ledger_id: directory / name
        for name in disk.names(directory)
        if (ledger_id := segment_ledger(name)) is not None
    }


def _whole_lines(data: memoryview) -> list[Fact]:
    """The lines of a damaged catalogue, wherever they begin."""
    whole = bytes(data)
    found = []
    position = 8
    while 0 <= position < len(data):
        line = parse_fact(data, position)
        if line is not None:
            found.append(line)
            position += FACT_BYTES + len(line.points)
        else:
            # A line begins with two zero bytes, unless it has very many index points.
            position = whole.find(b"\0\0", position + 1)
    return found
