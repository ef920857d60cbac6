"""What a start makes of a folder: the catalogue's ledgers and the journal behind it; what is kept, made and removed."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local import leases
from magnetar.storage.local.catalogue import Catalogue, Fact
from magnetar.storage.local.format import UNSYNCED, Control, FactKind, control_record, round_header
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.ledger import State
from magnetar.storage.local.recovery import Recovered, recover
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.segment_format import NOTHING_BEFORE, segment_name
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate
from magnetar.wire.stored import RECORD, RECORD_BYTES

from .conftest import SMALL
from .seen_disk import SeenDisk

DATA = Path("/data")
JOURNAL = DATA / "journal"
SEGMENTS = DATA / "segments"
FILE_BLOCKS = SMALL.journal_file_bytes // BLOCK_BYTES


def entry(ledger_id: int, number: int, size: int = 10) -> bytes:
    """The record of an entry whose offset is ten times its number."""
    body = bytes([number]) * size
    rest = RECORD.pack(0, 0, ledger_id, number, number * 10, number)[8:]
    return RECORD.pack(size, crc32c(body, crc32c(rest)), ledger_id, number, number * 10, number) + body


def created(ledger_id: int) -> bytes:
    return control_record(ledger_id, Control.CREATE)


def deleted(ledger_id: int) -> bytes:
    return control_record(ledger_id, Control.DELETE)


def progress(ledger_id: int, entries: int, size: int, points: bytes = b"") -> Fact:
    """Of a ledger with so many entries in `size` bytes."""
    return Fact(FactKind.PROGRESS, ledger_id, entries, size, entries * 10, entries, points)


class Folder:
    """A store's folder as a stopped process has left it: a catalogue, and what the test writes beside it."""

    def __init__(self) -> None:
        self.disk = SeenDisk()
        self.catalogue = Catalogue(self.disk, DATA / "catalogue")
        self.catalogue.load()

    def noted(self, *facts: Fact, sequence: int = 0, next_id: int = 1, epoch: int = 0) -> "Folder":
        self.catalogue.commit(list(facts), sequence, next_id, epoch)
        return self

    def round(self, epoch: int, sequence: int, *records: bytes, flags: int = 0) -> bytes:
        data = b"".join(records)
        digest = crc32c(b"".join(record[4:8] for record in records))
        salt = self.catalogue.known.journal_salt
        head = round_header(epoch, sequence, len(data), len(records), digest, salt, flags)
        block = bytes(head) + data
        return block.ljust(-(-len(block) // BLOCK_BYTES) * BLOCK_BYTES, b"\0")

    def journal(self, name: str, *rounds: bytes, blocks: int = FILE_BLOCKS) -> "Folder":
        """A file with these rounds, which is as long as the setting says."""
        self.file(JOURNAL / f"{name}.journal", b"".join(rounds).ljust(blocks * BLOCK_BYTES, b"\0"))
        return self

    def file(self, path: Path, data: bytes = b"") -> Path:
        file = self.disk.open(path, create=True)
        file.write(data, 0)
        file.close()
        return path

    def recover(self, *, direct: bool = True, sync_data: bool = True) -> Recovered:
        self.disk.opened.clear()
        self.disk.synced.clear()
        return recovered(self.disk, direct=direct, sync_data=sync_data)


def recovered(disk: CrashDisk, *, direct: bool = True, sync_data: bool = True) -> Recovered:
    settings = replace(SMALL, journal_sync_data=sync_data)

    async def begin() -> Recovered:
        return recover(
            LocalLedgerStore(DATA, settings, FakeClock(), disk, direct=direct, on_reported=lambda: None)
        )

    return asyncio.run(begin())


@pytest.fixture
def folder() -> Folder:
    return Folder()


def names(found: Recovered) -> tuple[list[str], list[str]]:
    """The journal's files that are needed still, and those that are free."""
    return [file.path.stem for file in found.used_files], [file.path.stem for file in found.free_files]


# --- the catalogue ----------------------------------------------------------------------------------------------------


def test_an_empty_folder_becomes_an_empty_store(folder: Folder) -> None:
    folder.disk.remove(DATA / "catalogue")
    found = folder.recover()
    assert (found.ledgers, found.deleted, found.leases, found.orphans) == ({}, [], [], [])
    assert (found.next_ledger_id, found.sequence, found.next_epoch) == (1, 0, 1)
    assert names(found) == ([], ["0000"])
    assert found.next_file_number == 1
    assert len(folder.disk.content(JOURNAL / "0000.journal")) == SMALL.journal_file_bytes
    assert found.free_files[0].size == SMALL.journal_file_bytes


def some_points(first: int, count: int) -> bytes:
    index = SparseIndex()
    for number in range(first, first + count):
        index.add(number, number * 40_000, number * 10, 0)
    return index.to_bytes(0, count)


def test_a_ledger_begins_with_all_that_the_catalogue_says_of_it(folder: Folder) -> None:
    folder.noted(
        progress(1, 5, 80_001, some_points(0, 2)), progress(2, 4, 2 * BLOCK_BYTES), progress(3, 0, 0)
    )
    folder.noted(
        progress(1, 9, 120_001, some_points(2, 1)),
        Fact(FactKind.SEALED, 4, 7, 900, 70, 8, b""),
        sequence=12,
        next_id=9,
    )
    found = folder.recover()
    assert (found.sequence, found.next_ledger_id) == (12, 9)
    assert {
        ledger_id: (ledger.state, ledger.finished, ledger.has_file, ledger.rest, ledger.points_noted)
        for ledger_id, ledger in found.ledgers.items()
    } == {
        1: (State.RECOVERED, False, True, None, 3),  # its last block must be read back
        2: (State.RECOVERED, False, True, None, 0),  # the file must be looked at
        3: (State.RECOVERED, False, False, b"", 0),
        4: (State.SEALED, True, True, None, 0),
    }
    for ledger_id, numbers in {
        1: (9, 120_001, 90, 9),
        2: (4, 2 * BLOCK_BYTES, 40, 4),
        4: (7, 900, 70, 8),
    }.items():
        ledger = found.ledgers[ledger_id]
        assert (ledger.durable_count, ledger.position, ledger.last_offset, ledger.max_timestamp_ms) == numbers
        assert (
            ledger.flushed_count,
            ledger.flushed_position,
            ledger.flushed_last_offset,
            ledger.flushed_max_timestamp,
        ) == numbers
        assert ledger.next_entry == ledger.durable_count
    index = found.ledgers[1].index
    assert index is not None
    assert list(index.positions) == [0, 40_000, 80_000]
    assert (found.ledgers[3].index, found.ledgers[4].index) == (None, None)


@pytest.mark.parametrize(("segments", "journals"), [(1, 0), (0, 1), (2, 1)])
def test_data_without_a_catalogue_is_refused_and_left_alone(
    folder: Folder, segments: int, journals: int
) -> None:
    for number in range(segments):
        folder.file(SEGMENTS / segment_name(number + 1), b"data")
    for number in range(journals):
        folder.journal(f"{number:04d}", folder.round(1, 1, created(1)))
    folder.disk.remove(DATA / "catalogue")
    before = folder.disk.paths()
    with pytest.raises(
        StorageError, match=f"is gone, and there are {segments} segments and {journals} journal"
    ):
        folder.recover()
    assert folder.disk.paths() == before
    assert folder.disk.still_open == []


# --- segments ---------------------------------------------------------------------------------------------------------


def test_a_start_removes_the_segments_of_deleted_ledgers_and_no_other_file(folder: Folder) -> None:
    gone = Fact(FactKind.DELETED, 2, 0, 0, 0, 0, b"")
    folder.noted(progress(1, 5, 500), progress(2, 5, 500), progress(3, 5, 500), next_id=4)
    folder.noted(gone, next_id=4)
    folder.journal("0000", folder.round(1, 1, deleted(3)))
    folder.file(SEGMENTS / "notes.txt")
    folder.file(SEGMENTS / "00000000000000FF.segment")
    for ledger_id in (1, 2, 3, 6):
        folder.file(SEGMENTS / segment_name(ledger_id))
    found = folder.recover()
    assert folder.disk.names(SEGMENTS) == sorted(
        ["notes.txt", "00000000000000FF.segment", segment_name(1), segment_name(6)]
    )
    assert list(found.ledgers) == [1]
    assert found.deleted == [3]
    assert found.next_ledger_id == 7, "behind the segment that no ledger has"


@pytest.mark.parametrize(
    ("unknown", "following"),
    [(1, 4), (3, 4), (4, 5), (900, 901), ((1 << 32) + 3, (1 << 32) + 4), ((1 << 32) + 4, 4), (1 << 63, 4)],
)
def test_no_new_ledger_gets_the_id_of_a_segment_that_is_within_reach(
    folder: Folder, unknown: int, following: int
) -> None:
    folder.noted(next_id=4)
    folder.file(SEGMENTS / segment_name(unknown))
    assert folder.recover().next_ledger_id == following


def test_the_segment_of_a_deleted_ledger_stays_while_it_is_leased(folder: Folder) -> None:
    folder.noted(progress(1, 5, 500), progress(2, 5, 500), next_id=3)
    folder.journal("0000", folder.round(1, 1, deleted(1), deleted(2)))
    paths = [folder.file(SEGMENTS / segment_name(ledger_id), b"x" * 500) for ledger_id in (1, 2)]
    folder.file(DATA / "leases" / ("a" * 32), leases.encode(600, [1, 7]))
    found = folder.recover()
    assert [(lease.lease_id, lease.ledgers) for lease in found.leases] == [("a" * 32, {1, 7})]
    assert found.orphans == [(1, paths[0], 500)]
    assert folder.disk.names(SEGMENTS) == [paths[0].name]
    assert paths[0].name not in folder.disk.still_open


# --- the journal's files ----------------------------------------------------------------------------------------------


def test_a_journal_file_that_was_not_finished_is_removed(folder: Folder) -> None:
    folder.journal("0000")
    folder.file(JOURNAL / "0001.new")
    folder.recover()
    assert folder.disk.names(JOURNAL) == ["0000.journal"]


@pytest.mark.parametrize("sync_data", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_journal_files_are_opened_so_that_writes_are_synced_where_they_are_to_be(
    folder: Folder, direct: bool, sync_data: bool
) -> None:
    """Where direct I/O is refused, the journal syncs behind its writes."""
    folder.journal("0000", folder.round(1, 1, created(1)))
    found = folder.recover(direct=direct, sync_data=sync_data)
    assert names(found) == (["0000"], ["0001"])
    for name in ("0000.journal", "0001.journal"):
        assert folder.disk.flags[name] == (direct, direct and sync_data)


def test_a_start_that_is_refused_leaves_no_journal_file_open(folder: Folder) -> None:
    folder.noted(progress(1, 5, 500), next_id=2)
    folder.journal("0000", folder.round(1, 7, entry(1, 6))).journal("0001")
    folder.noted(sequence=6, next_id=2)
    told = r"^the journal is damaged: entry 5 of ledger 1 is missing \(round 7\); magnetar doctor --data-dir /data "
    with pytest.raises(StorageError, match=told):
        folder.recover()
    assert folder.disk.still_open == ["catalogue"]


@pytest.mark.parametrize(
    ("epochs", "checkpoint", "used", "free", "following"),
    [
        ({}, 0, [], ["0000"], 1),
        ({"0000": 0}, 0, [], ["0000"], 1),  # never used: it will do
        ({"0004": 1}, 0, ["0004"], ["0005"], 6),
        ({"0004": 1}, 1, [], ["0005", "0004"], 6),  # not written over before there is a newer one
        ({"0000": 2, "0001": 1}, 2, [], ["0001", "0000"], 2),
        ({"0000": 2, "0001": 1}, 1, ["0000"], ["0001"], 2),
        ({"0000": 2, "0001": 1}, 0, ["0001", "0000"], ["0002"], 3),
        ({"0000": 2, "0001": 1, "0007": 0}, 0, ["0001", "0000"], ["0007"], 8),
        ({"x": 0}, 0, [], ["x"], 0),
    ],
)
def test_the_journal_goes_on_in_a_file_that_is_neither_needed_nor_the_newest(
    folder: Folder, epochs: dict[str, int], checkpoint: int, used: list[str], free: list[str], following: int
) -> None:
    """Round n is the only one of the file of epoch n."""
    for name, epoch in epochs.items():
        folder.journal(name, *([folder.round(epoch, epoch, created(epoch))] if epoch else []))
    folder.noted(sequence=checkpoint, next_id=3)
    found = folder.recover()
    assert names(found) == (used, free)
    assert found.next_file_number == following
    assert found.next_epoch == max(epochs.values(), default=0) + 1
    assert folder.disk.names(JOURNAL) == sorted(f"{name}.journal" for name in {*used, *free})


@pytest.mark.parametrize(("checkpoint", "removed"), [(0, []), (1, ["0000"]), (2, ["0000", "0001"])])
def test_files_of_another_size_go_once_they_are_not_needed_and_are_not_missed(
    folder: Folder, checkpoint: int, removed: list[str]
) -> None:
    for number in (1, 2):
        folder.journal(f"000{number - 1}", folder.round(number, number, created(number)), blocks=4)
    folder.noted(sequence=checkpoint, next_id=3, epoch=2)
    found = folder.recover()
    assert {f"000{n}.journal" for n in range(2)} - set(folder.disk.names(JOURNAL)) == {
        f"{name}.journal" for name in removed
    }
    assert names(found)[1] == ["0002"]
    for name in removed:
        assert f"{name}.journal" not in folder.disk.still_open
    folder.catalogue = Catalogue(folder.disk, DATA / "catalogue")
    folder.catalogue.load()
    known = folder.catalogue.known
    assert (known.journal_sequence, known.next_ledger_id) == (checkpoint, 3)
    # The newest that is left was noted before: only when files go is it not to be asked for.
    assert known.journal_epoch == (0 if removed else 2)
    assert names(folder.recover()) == (names(found)[0], names(found)[1]), "a second start takes it so, too"


@pytest.mark.parametrize(("checkpoint", "synced"), [(3, ["b", "c"]), (0, ["a", "b", "c"]), (6, ["c"])])
def test_a_start_syncs_the_rounds_that_it_builds_on_and_the_newest_file(
    folder: Folder, checkpoint: int, synced: list[str]
) -> None:
    folder.journal("a", *[folder.round(1, number, created(number)) for number in (1, 2, 3)])
    folder.journal("b", *[folder.round(2, number, created(number)) for number in (4, 5)])
    folder.journal("c", folder.round(3, 6, created(6)))
    folder.journal("d")
    folder.noted(sequence=checkpoint, next_id=7)
    folder.recover()
    assert [name for name in folder.disk.synced if name.endswith(".journal")] == [
        f"{name}.journal" for name in synced
    ]


def test_no_loss_of_power_takes_back_what_a_start_has_built_on(folder: Folder) -> None:
    """A process that was killed between a write and its sync leaves rounds, and names, that only memory has."""
    folder.journal("0000", folder.round(1, 1, created(1)), folder.round(1, 2, entry(1, 0)))
    folder.journal("0001")  # never used: no new file is made, whose name would be synced with the others
    folder.disk.open(JOURNAL / "0001.journal").sync()
    killed = folder.disk.after_kill()
    assert recovered(killed).ledgers[1].durable_count == 1
    assert recovered(killed.after_power_loss(Fate.DROPPED)).ledgers[1].durable_count == 1


# --- the journal's rounds ---------------------------------------------------------------------------------------------


def spoilt(block: bytes) -> bytes:
    return block[:70] + b"?" + block[71:]


def test_damage_is_named_once_with_what_is_whole_behind_it(folder: Folder) -> None:
    rounds = [folder.round(1, number, created(number), created(number + 10)) for number in range(1, 8)]
    rounds[2], rounds[5] = spoilt(rounds[2]), spoilt(rounds[5])
    folder.journal("0000", *rounds)
    with pytest.raises(StorageError) as refused:
        folder.recover()
    assert str(refused.value) == (
        f"the journal is damaged: 0000.journal at byte {2 * BLOCK_BYTES}, round 3; behind it 3 rounds with 6 records"
        " are whole, so it is no torn tail; magnetar doctor --data-dir /data shows what would be kept"
    )


def test_a_hole_in_a_journal_that_is_not_synced_ends_it_and_keeps_no_file_in_use(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = [folder.round(1, number, created(number), flags=UNSYNCED) for number in range(1, 5)]
    rounds[1] = spoilt(rounds[1])
    folder.journal("0000", *rounds)
    folder.journal("0001", folder.round(2, 5, created(5), flags=UNSYNCED))
    found = folder.recover(sync_data=False)
    assert (found.sequence, list(found.ledgers)) == (1, [1])
    assert [file.last_sequence for file in found.used_files] == [1, 1]
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "0000.journal at byte 4096, round 2; behind it 3 rounds with 3 records are whole" in told


def test_a_journal_file_that_something_has_cut_is_named(folder: Folder) -> None:
    folder.file(JOURNAL / "0000.journal", folder.round(1, 1, created(1)) + b"x")
    with pytest.raises(
        StorageError, match=r"0000\.journal has 4097 bytes, and was made with a multiple of 4096"
    ):
        folder.recover()


def test_the_journal_goes_on_where_the_catalogue_ends(folder: Folder) -> None:
    folder.noted(progress(1, 2, 100), progress(2, 3, 200), next_id=3, sequence=3)
    folder.journal(
        "0000",
        folder.round(1, 3, entry(1, 1), created(9)),  # which the checkpoint covers
        folder.round(
            1, 4, entry(1, 1), entry(1, 2), entry(1, 3, 30), created(1)
        ),  # of which it has the first
        folder.round(1, 5, created(4), entry(4, 0), deleted(2), entry(2, 3), entry(7, 0)),
        folder.round(1, 6, deleted(7)),
        folder.round(1, 7),
    )
    found = folder.recover()
    assert found.sequence == 7
    assert list(found.ledgers) == [1, 4]
    assert found.deleted == [2, 7]
    assert found.next_ledger_id == 5
    old, new = found.ledgers[1], found.ledgers[4]
    assert (old.durable_count, old.flushed_count, old.last_offset, old.max_timestamp_ms) == (4, 2, 30, 3)
    assert (old.position, old.flushed_position) == (100 + 2 * RECORD_BYTES + 40, 100)
    assert [bytes(dirty.parts[0]) for dirty in old.dirty] == [b"\2" * 10, b"\3" * 30]
    assert (old.next_entry, old.touched) == (4, False)
    assert (new.durable_count, new.next_entry, new.state, new.touched) == (1, 1, State.RECOVERED, True)
    assert (new.flushed_last_offset, new.last_offset) == (NOTHING_BEFORE, 0)


@pytest.mark.parametrize("end", [2, 4])
def test_a_ledger_that_was_cut_must_end_there(folder: Folder, end: int) -> None:
    def cut(ledger_id: int, count: int) -> bytes:
        return control_record(ledger_id, Control.CUT, count)

    records = [created(1), *[entry(1, number) for number in range(3)]]
    folder.journal("0000", folder.round(1, 1, *records, cut(1, 3), cut(5, 7)))
    assert folder.recover().ledgers[1].durable_count == 3
    folder.journal("0000", folder.round(1, 1, *records, cut(1, end)))
    with pytest.raises(StorageError, match=rf"ledger 1 ends at {end}, but has 3 entries \(round 1\)"):
        folder.recover()


@pytest.mark.parametrize("goes", [True, False])
def test_a_ledger_that_lacks_entries_is_damaged_unless_it_is_deleted_later(
    folder: Folder, goes: bool
) -> None:
    """The checkpoint was under way at the deletion: it wrote entries 0 to 7 of ledger 1 to no segment any more."""
    folder.noted(progress(1, 0, 0), progress(2, 3, 200), next_id=3, sequence=6)
    cut = control_record(1, Control.CUT, 9)
    folder.journal(
        "0000",
        folder.round(1, 6, entry(1, 7)),
        folder.round(1, 7, entry(1, 8), cut, entry(2, 3)),
        folder.round(1, 8, entry(1, 9), entry(2, 4), *([deleted(1)] if goes else [])),
    )
    if not goes:
        with pytest.raises(StorageError, match=r"entry 0 of ledger 1 is missing \(round 7\)"):
            folder.recover()
        return
    found = folder.recover()
    assert (list(found.ledgers), found.deleted, found.sequence) == ([2], [1], 8)
    assert found.ledgers[2].durable_count == 5
