"""The catalogue's file: what is synced, closed, removed and written over, also behind calls that fail."""

import errno
from pathlib import Path

import pytest

from magnetar.storage.local.catalogue import Catalogue, Fact, whole_catalogue
from magnetar.storage.local.format import FACT_BYTES, FactKind
from magnetar.testing.disk import CrashDisk, Fate

from .seen_disk import SeenDisk

PATH = Path("/data/catalogue")
NEW = PATH.with_suffix(".new")


def load(disk: CrashDisk) -> Catalogue:
    catalogue = Catalogue(disk, PATH)
    catalogue.load()
    return catalogue


def progress(ledger_id: int) -> Fact:
    return Fact(FactKind.PROGRESS, ledger_id, 5, 500, 50, 7, b"")


def fail(disk: CrashDisk, kind: str, *numbers: int) -> None:
    disk.calls.clear()
    disk.failures = {kind: dict.fromkeys(numbers, errno.EIO)}


def test_a_new_catalogue_knows_nothing() -> None:
    known = load(SeenDisk()).known
    assert (known.facts, known.deleted) == ({}, set())
    assert (known.next_ledger_id, known.journal_sequence, known.journal_epoch) == (1, 0, 0)


def test_a_start_builds_on_no_commit_that_a_loss_of_power_could_take_back() -> None:
    """A process that was killed between the write and its sync leaves one in memory alone."""
    disk = CrashDisk()
    catalogue = load(disk)
    fail(disk, "sync", 1)
    with pytest.raises(OSError, match="EIO"):
        catalogue.commit([progress(1)], 10, 2, 1)
    killed = disk.after_kill()
    assert load(killed).known.journal_sequence == 10
    assert load(killed.after_power_loss(Fate.DROPPED)).known.journal_sequence == 10


def test_a_file_that_was_not_finished_goes_with_the_next_start() -> None:
    disk = SeenDisk()
    load(disk).close()
    disk.open(NEW, create=True).close()
    load(disk)
    assert disk.names(PATH.parent) == ["catalogue"]


def test_lines_of_a_torn_commit_do_not_count_behind_a_shorter_one() -> None:
    disk = CrashDisk()
    load(disk).commit([progress(1)], 10, 2, 1)
    end = len(disk.content(PATH))
    load(disk).commit([progress(2), progress(3), progress(4)], 12, 5, 1)
    disk.content(PATH)[end + 20] ^= 1
    torn = disk.after_power_loss(Fate.DROPPED)
    catalogue = load(torn)
    assert (catalogue.known.journal_sequence, list(catalogue.facts)) == (10, [1])
    # Its two lines would end where the third of those that are left begins.
    catalogue.commit([progress(5)], 11, 6, 1)
    again = load(torn.after_power_loss(Fate.DROPPED))
    assert (again.known.journal_sequence, list(again.facts)) == (11, [1, 5])


def test_a_new_file_that_cannot_be_written_is_an_error_and_the_old_one_stays() -> None:
    disk = SeenDisk()
    catalogue = load(disk)
    catalogue.commit([progress(1)], 10, 2, 1)
    fail(disk, "sync", 1, 2, 3)  # the commit's, and then a new file's, twice
    for sequence in (11, 12, 13):
        with pytest.raises(OSError, match="EIO"):
            catalogue.commit([progress(2)], sequence, 3, 1)
        assert list(catalogue.facts) == [1]
        assert disk.still_open == ["catalogue"]
    catalogue.commit([progress(3)], 14, 4, 1)
    assert disk.still_open == ["catalogue"]
    again = load(disk.after_power_loss(Fate.DROPPED))
    assert (again.known.journal_sequence, list(again.facts)) == (14, [1, 3])


def test_of_a_longer_file_that_failed_nothing_is_left_behind_the_next_one() -> None:
    disk = SeenDisk()
    catalogue = load(disk)
    fail(disk, "sync", 1, 2)
    for facts in ([progress(1)], [progress(number) for number in range(1, 9)]):
        with pytest.raises(OSError, match="EIO"):
            catalogue.commit(facts, 10, 9, 1)
    assert len(disk.content(NEW)) > 8 * FACT_BYTES
    catalogue.commit([progress(1)], 10, 9, 1)
    assert bytes(disk.content(PATH)) == whole_catalogue(catalogue.known)


def test_behind_a_new_file_commits_are_added_again() -> None:
    disk = SeenDisk()
    catalogue = load(disk)
    fail(disk, "sync", 1)
    with pytest.raises(OSError, match="EIO"):
        catalogue.commit([progress(1)], 10, 2, 1)
    catalogue.commit([progress(1)], 10, 2, 1)
    size = len(disk.content(PATH))
    disk.synced.clear()
    catalogue.commit([progress(1)], 11, 2, 1)
    assert disk.synced == ["catalogue"], "no name has changed"
    assert len(disk.content(PATH)) == size + 2 * FACT_BYTES


def test_a_catalogue_is_closed_once() -> None:
    disk = SeenDisk()
    catalogue = load(disk)
    for _ in range(2):
        catalogue.close()
        assert disk.still_open == []
