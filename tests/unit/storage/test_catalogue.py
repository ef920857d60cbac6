"""The catalogue: what is torn is cut, what is damaged is named, and a failed call leaves nothing half believed."""

import errno
from pathlib import Path

import pytest

from magnetar.base.errors import StorageError
from magnetar.storage.local import catalogue as module
from magnetar.storage.local.catalogue import Catalogue, Fact
from magnetar.storage.local.format import CATALOGUE_MAGIC_1, FACT_BYTES, FactKind, fact
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.segment_format import segment_name
from magnetar.testing.disk import CrashDisk, Fate

PATH = Path("/data/catalogue")


def load(disk: CrashDisk) -> Catalogue:
    catalogue = Catalogue(disk, PATH)
    catalogue.load()
    return catalogue


def points(first: int, count: int) -> bytes:
    index = SparseIndex()
    for number in range(first, first + count):
        index.add(number, number * 40_000, number * 10, 0)
    return index.to_bytes(0, count)


def progress(ledger_id: int, entries: int, new: bytes = b"") -> Fact:
    return Fact(FactKind.PROGRESS, ledger_id, entries, entries * 100, entries * 10, 7, new)


def says(catalogue: Catalogue) -> dict[int, tuple[int, bytes]]:
    return {
        ledger_id: (line.entry_count, b"".join(known)) for ledger_id, (line, known) in catalogue.facts.items()
    }


def test_what_was_committed_comes_back() -> None:
    disk = CrashDisk()
    catalogue = load(disk)
    catalogue.commit([progress(1, 5, points(0, 2)), progress(2, 1)], 10, 3, 4)
    catalogue.commit([progress(1, 9, points(2, 1))], 12, 3, 5)
    again = load(disk.after_power_loss(Fate.DROPPED))
    assert says(again) == {1: (9, points(0, 3)), 2: (1, b"")}
    assert (again.known.journal_sequence, again.known.next_ledger_id, again.known.journal_epoch) == (12, 3, 5)


def test_version_1_is_read_and_becomes_version_2() -> None:
    disk = CrashDisk()
    old = disk.open(PATH, create=True)
    lines = [fact(FactKind.PROGRESS, 1, 5, 500, 50, 7), fact(FactKind.CHECKPOINT, 2, 10)]
    old.write(CATALOGUE_MAGIC_1 + b"".join(lines), 0)
    catalogue = load(disk)
    assert says(catalogue) == {1: (5, b"")}
    assert bytes(disk.content(PATH)[:8]) == b"MGCATLG2"
    again = load(disk.after_power_loss(Fate.DROPPED))
    assert says(again) == {1: (5, b"")}
    assert (again.known.journal_sequence, again.known.journal_epoch) == (10, 0)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_what_a_failed_commit_has_left_is_never_read(kind: str) -> None:
    """The first try, longer than the second one, was written and its sync failed: its end must not come to count."""
    disk = CrashDisk()
    catalogue = load(disk)
    disk.fail_path = "catalogue"
    disk.calls.clear()
    disk.failures[kind] = {1: errno.EIO}
    with pytest.raises(OSError, match="EIO"):
        catalogue.commit([progress(number, 1) for number in range(1, 9)], 10, 20, 1)
    assert says(catalogue) == {}
    catalogue.commit([progress(1, 1)], 12, 21, 1)
    assert says(catalogue) == {1: (1, b"")}
    again = load(disk.after_power_loss(Fate.KEPT))
    assert says(again) == {1: (1, b"")}
    assert again.known.journal_sequence == 12


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("call", range(1, 4))
@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_rewrite_that_fails_notes_no_points_twice(
    kind: str, call: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REWRITE_SLACK_BYTES", 0)
    disk = CrashDisk()
    catalogue = load(disk)
    disk.fail_path = "catalogue"
    disk.calls.clear()
    disk.failures[kind] = dict.fromkeys(range(call, call + count), errno.ENOSPC)
    noted = 0
    for sequence in range(1, 30):
        try:
            catalogue.commit([progress(1, sequence, points(noted, sequence - noted))], sequence, 2, 1)
        except OSError:
            continue
        noted = sequence
    assert noted == 29
    assert says(load(disk.after_power_loss(Fate.DROPPED))) == {1: (29, points(0, 29))}


def test_a_new_file_that_may_not_have_the_name_is_written_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REWRITE_SLACK_BYTES", 0)
    disk = CrashDisk()
    catalogue = load(disk)
    sync_directory = CrashDisk.sync_directory

    def failing(disk: CrashDisk, path: Path) -> None:
        raise OSError(errno.EIO, "EIO")

    monkeypatch.setattr(CrashDisk, "sync_directory", failing)
    acknowledged = 0
    for sequence in range(1, 20):
        try:
            catalogue.commit([progress(1, sequence)], sequence, 2, 1)
        except StorageError:
            break
        acknowledged = sequence
    else:
        pytest.fail("went on in a file that may have lost its name")
    monkeypatch.setattr(CrashDisk, "sync_directory", sync_directory)
    for fate in (Fate.KEPT, Fate.DROPPED):
        again = load(disk.after_power_loss(fate))
        assert says(again) == {1: (acknowledged, b"")}


def a_catalogue() -> tuple[CrashDisk, list[int]]:
    """And where each of its commits ends."""
    disk = CrashDisk()
    catalogue = load(disk)
    ends = [len(disk.content(PATH))]
    for sequence in range(1, 6):
        catalogue.commit(
            [progress(sequence, sequence, points(0, sequence)), progress(1, sequence)], sequence, 9, 1
        )
        ends.append(len(disk.content(PATH)))
    return disk, ends


def test_every_flipped_bit_is_named_or_is_in_the_last_commit() -> None:
    disk, ends = a_catalogue()
    size = ends[-1]
    for position in range(size):
        for bit in (0, 7):
            damaged = disk.after_power_loss(Fate.DROPPED)
            damaged.content(PATH)[position] ^= 1 << bit
            if position < ends[-2]:
                with pytest.raises(StorageError, match="catalogue /data/catalogue is damaged at byte"):
                    load(damaged)
            else:
                # It looks the same as a commit that was cut short: it counts as one, and the journal has what it said.
                found = load(damaged)
                assert found.known.journal_sequence == 4


def test_a_file_that_was_written_as_a_whole_cannot_be_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REWRITE_SLACK_BYTES", -1 << 20)
    disk = CrashDisk()
    load(disk).commit([progress(number, 3, points(0, 2)) for number in range(1, 5)], 1, 9, 1)
    for position in range(len(disk.content(PATH))):
        damaged = disk.after_power_loss(Fate.DROPPED)
        damaged.content(PATH)[position] ^= 1
        with pytest.raises(StorageError, match="is damaged at byte"):
            load(damaged)


def test_every_cut_of_the_last_commit_is_a_torn_tail_that_the_next_commit_replaces() -> None:
    disk, ends = a_catalogue()
    for size in range(ends[-2] + 1, ends[-1]):
        torn = disk.after_power_loss(Fate.DROPPED)
        del torn.content(PATH)[size:]
        catalogue = load(torn)
        assert catalogue.known.journal_sequence == 4
        catalogue.commit([progress(8, 8)], 6, 9, 1)
        again = load(torn.after_power_loss(Fate.DROPPED))
        assert again.known.journal_sequence == 6
        assert again.facts[8][0].entry_count == 8


def test_damage_in_version_1_is_named_when_two_checkpoints_stand_behind_it() -> None:
    lines = [
        fact(FactKind.PROGRESS, 1, 5, 500, 50, 7),
        fact(FactKind.CHECKPOINT, 2, 10),
        fact(FactKind.PROGRESS, 1, 6, 600, 60, 7),
        fact(FactKind.CHECKPOINT, 2, 11),
    ]
    content = CATALOGUE_MAGIC_1 + b"".join(lines)
    for position, refused in ((8 + 20, True), (8 + 2 * FACT_BYTES + 20, False)):
        disk = CrashDisk()
        disk.open(PATH, create=True).write(content, 0)
        disk.content(PATH)[position] ^= 1
        if refused:
            with pytest.raises(StorageError, match="damaged"):
                load(disk)
        else:
            assert says(load(disk)) == {1: (5, b"")}


def gone(ledger_id: int) -> Fact:
    return Fact(FactKind.DELETED, ledger_id, 0, 0, 0, 0, b"")


def segment(disk: CrashDisk, ledger_id: int) -> Path:
    path = PATH.with_name("segments") / segment_name(ledger_id)
    disk.open(path, create=True).close()
    return path


def test_a_deleted_ledger_is_known_until_its_segment_is_surely_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is known to be deleted is ever removed, so a rewrite must not forget whose file may come back."""
    monkeypatch.setattr(
        module, "REWRITE_SLACK_BYTES", -1
    )  # whatever is superfluous goes with the next commit
    disk = CrashDisk()
    disk.make_directory(PATH.parent / "segments")
    paths = [segment(disk, number) for number in (1, 2)]
    disk.sync_directory(PATH.parent / "segments")
    catalogue = load(disk)
    catalogue.commit([progress(1, 5), progress(2, 5)], 10, 3, 4)
    catalogue.commit([gone(1), gone(2)], 11, 3, 4)
    disk = disk.after_power_loss(Fate.DROPPED)
    catalogue = load(disk)
    assert catalogue.known.deleted == {1, 2}
    disk.remove(paths[0])  # which is not synced: the name may come back
    catalogue.commit([progress(3, 1), gone(3)], 13, 4, 4)
    disk = disk.after_power_loss(Fate.DROPPED)
    assert load(disk).known.deleted == {2, 3}, "a flush may still make the third one's file"
    assert paths[0] not in disk.paths()
    assert paths[1] in disk.paths()


def test_deletions_are_still_known_after_a_commit_that_failed() -> None:
    disk = CrashDisk()
    disk.make_directory(PATH.parent / "segments")
    segment(disk, 1)
    catalogue = load(disk)
    catalogue.commit([progress(1, 5)], 10, 3, 4)
    catalogue.commit([gone(1)], 11, 3, 4)
    disk.fail_path = "catalogue"
    disk.calls.clear()
    disk.failures["write"] = {1: errno.EIO}
    with pytest.raises(OSError, match="EIO"):
        catalogue.commit([progress(2, 1)], 12, 3, 4)
    catalogue.commit([progress(2, 1)], 12, 3, 4)  # which writes a new file
    assert load(disk.after_power_loss(Fate.KEPT)).known.deleted == {1}


def test_what_is_noted_of_a_ledger_anew_is_not_deleted() -> None:
    """`magnetar doctor --repair` replaces what was noted of a ledger that way."""
    disk = CrashDisk()
    catalogue = load(disk)
    before = catalogue.known.live_bytes
    catalogue.commit([progress(1, 5), gone(1), progress(1, 6)], 10, 3, 4)
    assert says(catalogue) == {1: (6, b"")}
    assert catalogue.known.deleted == set()
    assert catalogue.known.live_bytes == before + FACT_BYTES
    catalogue.commit([gone(1), gone(1)], 10, 3, 4)
    assert catalogue.known.live_bytes == before + FACT_BYTES
