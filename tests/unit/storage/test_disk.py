"""The machine's disk, as the store uses it."""

import errno
import mmap
import os
from pathlib import Path

import pytest

from magnetar.storage.local.disk import RealDisk
from magnetar.storage.local.format import BLOCK_BYTES

from .helpers import files_end_at


def test_a_disk_with_a_root_stays_in_its_folder_wherever_that_is_moved(tmp_path: Path) -> None:
    root, moved = tmp_path / "data", tmp_path / "moved"
    disk = RealDisk(root)
    disk.make_directory(root / "segments")
    root.rename(moved)
    (root / "segments").mkdir(parents=True)
    disk.open(root / "segments" / "a", create=True).close()
    disk.open(root / "b", create=True).close()
    disk.rename(root / "b", root / "c")
    disk.sync_directory(root)
    disk.make_directory(root / "leases")
    assert disk.names(root) == ["c", "leases", "segments"]
    assert disk.names(root / "segments") == ["a"]
    disk.remove(root / "c")
    disk.remove(root / "c")
    assert sorted(path.name for path in moved.rglob("*")) == ["a", "leases", "segments"]
    assert [path.name for path in root.rglob("*")] == ["segments"]


def test_errors_name_files_as_an_operator_finds_them(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"'{tmp_path}/none'"):
        disk.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=f"'{tmp_path}/none' -> '{tmp_path}/other'"):
        disk.rename(tmp_path / "none", tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=f"'{tmp_path}/none'"):
        disk.names(tmp_path / "none")


def blocks(*numbers: int) -> bytes:
    return b"".join(bytes([number]) * BLOCK_BYTES for number in numbers)


@pytest.mark.parametrize(
    ("room", "reason"),
    [
        (BLOCK_BYTES, os.strerror(errno.EFBIG)),
        (2 * BLOCK_BYTES, os.strerror(errno.EFBIG)),
        (2 * BLOCK_BYTES + 512, "takes no more"),  # each attempt to write the third block ends there
    ],
)
def test_a_write_for_which_there_is_no_room_fails(tmp_path: Path, room: int, reason: str) -> None:
    # As of a full disk: the write ends short, and the next one fails.
    file = RealDisk().open(tmp_path / "a", create=True)
    with files_end_at(room), pytest.raises(OSError, match=reason):
        file.write(blocks(1, 2, 3), 0)
    assert (tmp_path / "a").read_bytes() == blocks(1, 2, 3)[:room]
    file.close()


@pytest.mark.parametrize("short", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_a_write_that_ends_short_goes_on_at_its_last_whole_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    # A full disk in which there is room again: no test can make one without being root.
    write = os.pwrite
    asked: list[tuple[int, int]] = []

    def ends_short(descriptor: int, data: memoryview, position: int) -> int:
        asked.append((len(data), position))
        return write(descriptor, data[:short] if len(asked) == 1 else data, position)

    monkeypatch.setattr(os, "pwrite", ends_short)
    file = RealDisk().open(tmp_path / "a", create=True)
    file.write(blocks(1, 2, 3), BLOCK_BYTES)
    left = short - short % BLOCK_BYTES
    assert asked == [(3 * BLOCK_BYTES, BLOCK_BYTES), (3 * BLOCK_BYTES - left, BLOCK_BYTES + left)]
    assert (tmp_path / "a").read_bytes() == blocks(0, 1, 2, 3)
    file.close()


def test_a_write_that_makes_no_progress_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    file = RealDisk().open(tmp_path / "a", create=True)
    with pytest.raises(OSError, match="takes no more"):
        file.write(blocks(1), 0)
    file.close()


@pytest.mark.parametrize("direct", [False, True])
def test_a_read_ends_at_the_end_of_the_file(tmp_path: Path, direct: bool) -> None:
    (tmp_path / "a").write_bytes(blocks(1, 2) + b"end")
    disk = RealDisk()
    if direct and not disk.can_direct(tmp_path):
        pytest.skip("no direct I/O here")
    file = disk.open(tmp_path / "a", direct=direct)
    buffer = mmap.mmap(-1, 4 * BLOCK_BYTES)
    assert file.read(memoryview(buffer), BLOCK_BYTES) == BLOCK_BYTES + 3
    assert buffer[: BLOCK_BYTES + 3] == blocks(2) + b"end"
    assert file.read(memoryview(buffer)[:BLOCK_BYTES], 0) == BLOCK_BYTES
    assert buffer[:BLOCK_BYTES] == blocks(1)
    assert file.read(memoryview(buffer), 4 * BLOCK_BYTES) == 0
    file.close()
