"""Which journal file is written next, when one is free again, and how much room there is."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import cast

import pytest

from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.disk import File, RealDisk, RealFile
from magnetar.storage.local.ring import Ring, RingFile, prepare_file
from magnetar.testing.disk import CrashDisk, Fate

JOURNAL = Path("/journal")


def ring_of(*sizes: int, next_epoch: int = 5) -> Ring:
    ring = Ring(next_epoch)
    for number, size in enumerate(sizes):
        ring.add(RingFile(Path(f"{number}"), cast(File, None), size))
    return ring


def write(ring: Ring, size: int, sequence: int) -> str | None:
    """What the journal does with a round; the name of its file."""
    file = ring.reserve(size)
    if file is None:
        return None
    file.position += size
    file.last_sequence = sequence
    return file.path.name


def test_files_are_filled_one_after_the_other_and_each_use_has_its_own_epoch() -> None:
    ring = ring_of(100, 100)
    names = [write(ring, 50, sequence) for sequence in range(1, 6)]
    assert names == ["0", "0", "1", "1", None]
    assert [(file.path.name, file.epoch, file.last_sequence) for file in ring.full] == [
        ("0", 5, 2),
        ("1", 6, 4),
    ]
    assert ring.current is None
    assert ring.recycle(1) == 0
    assert ring.recycle(2) == 1
    assert write(ring, 100, 5) == "0"
    assert ring.current is not None
    assert (ring.current.epoch, ring.current.position) == (7, 100)
    assert ring.next_epoch == 8
    assert ring.recycle(4) == 1, "the one that is written stays"
    assert ring.recycle(9) == 0


def test_a_round_that_fits_no_file_s_end_takes_one_that_is_large_enough() -> None:
    ring = ring_of(100, 200, 300)
    assert write(ring, 150, 1) == "1"
    assert [file.path.name for file in ring.free] == ["0", "2"]
    assert write(ring, 200, 2) == "2"
    assert write(ring, 101, 3) is None
    assert write(ring, 100, 3) == "0"


def test_a_file_that_cannot_be_written_keeps_its_rounds_and_gets_no_more() -> None:
    ring = ring_of(100, 100)
    write(ring, 10, 1)
    ring.give_up_current()
    assert write(ring, 10, 2) == "1"
    assert [file.path.name for file in ring.full] == ["0"]
    write(ring, 90, 3)
    assert write(ring, 10, 4) is None
    assert ring.recycle(3) == 1
    assert [[file.path.name for file in files] for files in (ring.free, ring.failed)] == [["1"], ["0"]]
    assert [file.path.name for file in ring.files()] == ["1", "0"]


def test_it_is_time_to_make_room_when_half_of_what_can_be_written_is() -> None:
    ring = ring_of(100, 100, 100, 100)
    written = 0
    while not ring.half_used():
        assert ring.bytes_room() == 400 - written
        write(ring, 10, 1)
        written += 10
    assert written == 200
    ring = ring_of(100, 100, 100)
    write(ring, 10, 1)
    ring.give_up_current()
    assert ring.bytes_room() == 200
    assert ring.half_used(), "what a file has that failed is used, and it is no room"
    ring.recycle(1)
    assert not ring.half_used()
    for _ in range(10):
        assert not ring.half_used()
        write(ring, 10, 2)
    assert ring.half_used()
    assert ring.bytes_room() == 100


def test_what_is_used_is_counted_exactly() -> None:
    ring = ring_of(99, 101)
    write(ring, 99, 1)
    assert not ring.half_used()
    assert write(ring, 102, 2) is None
    assert not ring.half_used()
    write(ring, 1, 2)
    assert ring.half_used()


def test_what_a_round_leaves_at_a_file_s_end_is_used_also_when_no_other_file_takes_the_round() -> None:
    ring = ring_of(100, 10)
    write(ring, 50, 1)
    assert not ring.half_used()
    assert write(ring, 60, 2) is None
    assert ring.half_used()
    assert ring.bytes_room() == 10


def test_a_ring_without_files_has_no_room_and_asks_for_some() -> None:
    ring = Ring(1)
    assert ring.half_used()
    assert ring.bytes_room() == 0
    assert write(ring, 1, 1) is None


def test_files_that_a_start_finds_with_rounds_are_used_until_their_rounds_are_not_needed() -> None:
    ring = Ring(7)
    found = [
        RingFile(Path(name), cast(File, None), 100, last_sequence=last) for name, last in [("a", 3), ("b", 6)]
    ]
    ring.add(RingFile(Path("c"), cast(File, None), 100), full=found)
    assert [file.path.name for file in ring.files()] == ["a", "b", "c"]
    assert ring.half_used()
    assert ring.bytes_room() == 100
    assert write(ring, 50, 7) == "c"
    assert ring.recycle(5) == 1
    assert [[file.path.name for file in files] for files in (ring.full, ring.free)] == [["b"], ["a"]]
    assert ring.bytes_room() == 150


def test_the_files_are_those_in_use_and_those_that_are_not() -> None:
    ring = ring_of(100, 100, 100)
    assert [file.epoch for file in ring.files()] == [0, 0, 0], "they were never used"
    write(ring, 100, 1)
    write(ring, 100, 2)
    assert [file.path.name for file in ring.files()] == ["0", "1", "2"]


@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("blocks", [1, 256, 300])
def test_a_new_file_is_zeroes_and_whole_whenever_the_power_goes(blocks: int, fate: Fate) -> None:
    disk = CrashDisk()
    disk.make_directory(JOURNAL)
    path, size = JOURNAL / "0000.journal", blocks * BLOCK_BYTES
    disk.open(path.with_suffix(".new"), create=True).write(
        b"x" * 9 * BLOCK_BYTES, 0
    )  # of a start that was killed
    prepare_file(disk, path, size, direct=True)
    assert disk.names(JOURNAL) == ["0000.journal"]
    after = disk.after_power_loss(fate)
    assert after.names(JOURNAL) == ["0000.journal"]
    assert bytes(after.content(path)) == bytes(size)


@pytest.mark.parametrize("fails", [True, False])
def test_making_a_file_leaves_none_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    def sync(file: RealFile) -> None:
        if fails:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(RealFile, "sync", sync)

    def opened() -> list[str]:
        return [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]

    before = opened()
    with pytest.raises(OSError, match="No space") if fails else nullcontext():
        prepare_file(RealDisk(), tmp_path / "0000.journal", BLOCK_BYTES, direct=False)
    assert opened() == before
    assert (tmp_path / "0000.journal").exists() != fails
