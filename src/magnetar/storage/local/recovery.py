"""From the files of a stopped store to its ledgers: first the catalogue, then the part of the journal after it.

It runs as a whole in one thread before the store serves.  Unsealed ledgers become `RECOVERED`: known, complete and
readable, but sealed only when they are opened, so that a start does not take longer for many ledgers than for one.
"""

import logging
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.catalogue import Catalogue, Known, points_count
from magnetar.storage.local.disk import Disk
from magnetar.storage.local.format import Control, FactKind
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.leases import Lease, load_leases
from magnetar.storage.local.ledger import LedgerHome, LocalLedger, Queued, State
from magnetar.storage.local.reads import Reads
from magnetar.storage.local.replay import Damage, Survey, Torn, survey, walk
from magnetar.storage.local.ring import RingFile, prepare_file
from magnetar.storage.local.rounds import Record
from magnetar.storage.local.segment import read_footer, scan
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.segment_format import NOTHING_BEFORE, segment_ledger
from magnetar.storage.store import LedgerId

log = logging.getLogger(__name__)

_IDS_IN_REACH: Final = 1 << 32  # so many ledgers will never be created


class RecoveredStore(LedgerHome, Protocol):
    """The store that starts, as recovery uses it: the place of its files, and the home of its ledgers."""

    disk: Disk
    data_dir: Path
    segments: Path
    settings: LocalStoreSettings
    direct: bool


@dataclass(slots=True)
class Recovered:
    catalogue: Catalogue
    ledgers: dict[int, LocalLedger] = field(default_factory=dict)
    next_ledger_id: int = 1
    sequence: int = 0
    next_epoch: int = 1
    used_files: list[RingFile] = field(default_factory=list)
    """Journal files with rounds that are needed until the next checkpoint, oldest first."""
    free_files: list[RingFile] = field(default_factory=list)
    next_file_number: int = 0
    deleted: list[int] = field(default_factory=list)
    """Deleted ledgers whose deletion is not in the catalogue yet."""
    leases: list[Lease] = field(default_factory=list)
    orphans: list[tuple[int, Path, int]] = field(default_factory=list)
    """Segments of deleted ledgers that only leases keep."""


def recover(store: RecoveredStore) -> Recovered:
    """Blocking.  Raises OSError if files cannot be read, and StorageError if they have more damage than a torn tail."""
    catalogue = Catalogue(store.disk, store.data_dir / "catalogue")
    if "catalogue" not in store.disk.names(store.data_dir):
        _check_is_new(store)
    catalogue.load()
    found = Recovered(catalogue, next_ledger_id=catalogue.known.next_ledger_id)
    found.sequence = catalogue.known.journal_sequence
    for ledger_id, (line, points) in catalogue.facts.items():
        ledger = LocalLedger(store, LedgerId(ledger_id), State.RECOVERED)
        ledger.next_entry = ledger.durable_count = ledger.flushed_count = line.entry_count
        ledger.position = ledger.flushed_position = line.data_bytes
        ledger.last_offset = ledger.flushed_last_offset = line.last_offset
        ledger.max_timestamp_ms = ledger.flushed_max_timestamp = line.max_timestamp_ms
        ledger.has_file = line.data_bytes > 0
        ledger.rest = None if line.data_bytes else b""  # the file is to be looked at before it is written to
        if line.kind is FactKind.SEALED:
            ledger.state = State.SEALED
            ledger.finished = True
        elif line.entry_count:
            ledger.index = SparseIndex()
            ledger.index.extend(b"".join(points))
            ledger.points_noted = points_count(points)
        found.ledgers[ledger_id] = ledger
    _replay(store, found)
    found.leases = load_leases(store.disk, store.data_dir / "leases")
    _look_at_segments(store, found)
    return found


def _check_is_new(store: RecoveredStore) -> None:
    """Refuse a folder that has segments or a journal but no catalogue, because the store would overwrite them."""
    segments = [name for name in store.disk.names(store.segments) if name.endswith(".segment")]
    journal = survey(store.disk, store.data_dir / "journal", Known())
    for file in journal.files():
        file.file.close()
    if segments or journal.uses:
        raise StorageError(
            f"the catalogue {store.data_dir / 'catalogue'} is gone, and there are {len(segments)} segments and"
            f" {len(journal.uses)} journal files; magnetar doctor --data-dir {store.data_dir} shows what would be kept"
        )


def _look_at_segments(store: RecoveredStore, found: Recovered) -> None:
    """Remove the segment files of deleted ledgers; leave files that belong to no ledger where they are.

    The removal of a file is not synced when its ledger is deleted, so a deleted ledger's file may exist again.
    """
    deleted = found.catalogue.known.deleted.union(found.deleted)
    leased = set().union(*(lease.ledgers for lease in found.leases))
    for name in store.disk.names(store.segments):
        ledger_id = segment_ledger(name)
        if ledger_id is None or ledger_id in found.ledgers:
            continue
        if ledger_id in deleted:
            if ledger_id in leased:
                file = store.disk.open(store.segments / name)
                try:
                    found.orphans.append((ledger_id, store.segments / name, file.size()))
                finally:
                    file.close()
            else:
                store.disk.remove(store.segments / name)
        else:
            log.warning("segment of an unknown ledger left alone: file=%s", name)
            if ledger_id - found.next_ledger_id < _IDS_IN_REACH:
                found.next_ledger_id = max(found.next_ledger_id, ledger_id + 1)


def _replay(store: RecoveredStore, found: Recovered) -> None:
    directory = store.data_dir / "journal"
    sync_writes = store.settings.journal_sync_data and store.direct
    for name in store.disk.names(directory):
        if name.endswith(".new"):
            store.disk.remove(directory / name)
    known = found.catalogue.known
    journal = survey(store.disk, directory, known, direct=store.direct, sync_writes=sync_writes)
    try:
        _apply_rounds(store, found, journal)
    except BaseException:
        for file in journal.files():
            file.file.close()
        raise
    found.next_epoch = max(journal.newest_epoch, known.journal_epoch) + 1
    files = sorted(journal.files(), key=lambda file: file.epoch)
    _keep_what_was_found(store, files, known.journal_sequence)
    if any(file.last_sequence <= known.journal_sequence for file in files if _is_of_other_size(store, file)):
        # These files are removed below, so no later start may expect that the newest of them was in use.
        found.catalogue.commit([], known.journal_sequence, known.next_ledger_id, 0)
    for file in files:
        if file.last_sequence > known.journal_sequence:
            found.used_files.append(file)
        elif _is_of_other_size(store, file):
            # The setting has changed: a round of the new greatest size might not fit this file.
            file.file.close()
            store.disk.remove(file.path)
        else:
            found.free_files.append(file)
        number = re.match(r"\d+", file.path.name)
        found.next_file_number = max(found.next_file_number, int(number.group()) + 1 if number else 0)
    newest = max((file.epoch for file in files), default=0)
    if all(newest and file.epoch == newest for file in found.free_files):
        # The store begins with another file, and not in the rest of the last one, whose torn round, if any, stays.
        # The newest file, which the catalogue may have noted, is not overwritten either before there is a newer one.
        path = directory / f"{found.next_file_number:04d}.journal"
        size = store.settings.journal_file_bytes
        prepare_file(store.disk, path, size, direct=store.direct)
        handle = store.disk.open(path, direct=store.direct, sync_writes=sync_writes)
        found.free_files.insert(0, RingFile(path, handle, size))
        found.next_file_number += 1


def _keep_what_was_found(store: RecoveredStore, files: list[RingFile], checkpoint: int) -> None:
    """Make durable the files on which the store builds from now on.

    A process that was killed between a write and its sync leaves rounds, and files' names, that only the page cache
    has.  A loss of power would take them, but the rounds that are written after them from now on would prove that they
    existed.
    """
    for file in files:
        if file.last_sequence > checkpoint or file is files[-1]:
            file.file.sync()
    store.disk.sync_directory(store.data_dir / "journal")


def _is_of_other_size(store: RecoveredStore, file: RingFile) -> bool:
    return file.size != store.settings.journal_file_bytes


def _apply_rounds(store: RecoveredStore, found: Recovered, journal: Survey) -> None:
    """Take over what the journal has after the checkpoint.

    A ledger that lacks entries is no damage if it is deleted later.  A checkpoint that was under way at the deletion
    did not write its entries behind any more, and older versions did not note the deletion with it.

    Raises:
        StorageError: the journal is damaged.
    """
    doctor = f"magnetar doctor --data-dir {store.data_dir} shows what would be kept"
    for name, size in journal.cut:
        raise StorageError(
            f"the journal is damaged: {name} has {size} bytes, and was made with a multiple of {BLOCK_BYTES}; {doctor}"
        )
    checkpoint = found.sequence
    damage: Damage | None = None
    gaps: dict[int, StorageError] = {}
    rounds_behind = records_behind = 0
    for item in walk(journal, found.catalogue.known):
        if isinstance(item, Damage):
            damage = damage or item
        elif isinstance(item, Torn):
            log.warning("journal cut at its torn tail: file=%s round=%d", item.file_name, item.sequence)
        elif item.head.sequence > checkpoint:
            if damage is not None:
                rounds_behind += 1
                records_behind += len(item.records)
                if not damage.is_proven:
                    item.use.file.last_sequence = found.sequence
                continue
            found.sequence = item.head.sequence
            for record in item.records:
                if record.entry_id == Control.DELETE:
                    gaps.pop(record.ledger_id, None)
                elif record.ledger_id in gaps:
                    continue
                try:
                    _apply(store, found, record)
                except StorageError as error:
                    gaps[record.ledger_id] = StorageError(f"{error} (round {item.head.sequence}); {doctor}")
    for gap in gaps.values():
        raise gap
    if damage is None:
        return
    told = f"{damage.sentence()}; behind it {rounds_behind} rounds with {records_behind} records are whole"
    if damage.is_proven:
        raise StorageError(f"the journal is damaged: {told}, so it is no torn tail; {doctor}")
    log.error(
        "the journal was written with journal.sync.data=false and ends where a loss of power has left a hole: %s,"
        " and are dropped",
        told,
    )


def _apply(store: RecoveredStore, found: Recovered, record: Record) -> None:
    ledger = found.ledgers.get(record.ledger_id)
    match record.entry_id:
        case Control.CREATE:
            if ledger is None:
                ledger = LocalLedger(store, LedgerId(record.ledger_id), State.RECOVERED)
                ledger.touched = True
                found.ledgers[record.ledger_id] = ledger
            found.next_ledger_id = max(found.next_ledger_id, record.ledger_id + 1)
        case Control.DELETE:
            if ledger is not None:
                del found.ledgers[record.ledger_id]
            found.deleted.append(record.ledger_id)
        case Control.CUT:
            if ledger is not None and ledger.durable_count != record.last_offset:
                raise StorageError(
                    f"the journal is damaged: ledger {record.ledger_id} ends at {record.last_offset}, "
                    f"but has {ledger.durable_count} entries"
                )
        case entry_id if ledger is not None and entry_id >= ledger.durable_count:
            if entry_id > ledger.durable_count:
                raise StorageError(
                    f"the journal is damaged: entry {ledger.durable_count} of ledger {record.ledger_id} "
                    "is missing"
                )
            ledger.on_durable(
                Queued(
                    ledger,
                    record.header,
                    (record.body,),
                    record.size,
                    record.last_offset,
                    record.max_timestamp_ms,
                    _durable_before,
                )
            )
            ledger.next_entry = ledger.durable_count


def load_index(reads: Reads, path: Path, ledger_id: int, entry_count: int, data_bytes: int) -> SparseIndex:
    """Blocking.  The index of a finished segment: from its footer, or from its records if the footer is damaged.

    Raises:
        EntryCorrupt: the footer is damaged, and records are, too, so that not all entries can be found.
        LedgerNotFound: the file is gone.
        StorageError: the file cannot be read.
    """
    try:
        with reads.files.use(path) as file:
            footer = read_footer(file, reads.arena, ledger_id)
            index = SparseIndex()
            if footer is not None and (footer.entry_count, footer.data_bytes) == (entry_count, data_bytes):
                index.extend(footer.points)
                return index
            log.error("segment footer damaged, reading records: ledger=%d file=%s", ledger_id, path.name)
            offset = timestamp = NOTHING_BEFORE
            count = 0
            for position, entry in scan(file, reads.arena, ledger_id, data_bytes, 1 << 20):
                if index.wants_point(position):
                    index.add(entry.entry_id, position, offset, timestamp)
                offset = entry.last_offset
                timestamp = max(timestamp, entry.max_timestamp_ms)
                count += 1
            if count == 0:
                raise EntryCorrupt(f"ledger {ledger_id} has neither a footer nor records that can be read")
            return index
    except FileNotFoundError:
        raise LedgerNotFound(f"the segment of ledger {ledger_id} is gone") from None
    except OSError as error:
        raise StorageError(f"ledger {ledger_id} cannot be read: {error.strerror or error}") from error


def _durable_before(_: Exception | None) -> None:
    """Does nothing: no producer waits for an entry that was found in the journal."""
