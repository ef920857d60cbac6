"""The machine's disk, as the store uses it."""

import errno
import fcntl
import gc
import mmap
import os
import stat
from pathlib import Path

import pytest

from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.disk import RealDisk

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
    buffer = aligned(4)
    assert file.read(buffer, BLOCK_BYTES) == BLOCK_BYTES + 3
    assert buffer[: BLOCK_BYTES + 3] == blocks(2) + b"end"
    assert file.read(buffer[:BLOCK_BYTES], 0) == BLOCK_BYTES
    assert buffer[:BLOCK_BYTES] == blocks(1)
    assert file.read(buffer, 4 * BLOCK_BYTES) == 0
    file.truncate(2 * BLOCK_BYTES)
    assert file.size() == 2 * BLOCK_BYTES
    assert file.read(buffer, BLOCK_BYTES) == BLOCK_BYTES
    file.close()


def descriptors() -> set[str]:
    """What this process has open below a test's folder."""
    links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return {path for link in links if "pytest" in (path := os.path.realpath(link))}


def test_nothing_stays_open_of_what_was_closed_or_is_used_no_more(tmp_path: Path) -> None:
    before = descriptors()
    disk = RealDisk(tmp_path)
    assert descriptors() - before == {str(tmp_path)}
    disk.can_direct(tmp_path)
    disk.names(tmp_path)
    disk.sync_directory(tmp_path)
    file = disk.open(tmp_path / "a", create=True)
    assert descriptors() - before == {str(tmp_path), str(tmp_path / "a")}
    file.close()
    del disk
    gc.collect()
    assert not descriptors() - before  # what others left open may be closed by now


def test_files_and_folders_are_their_owners_and_not_everybodys(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        disk = RealDisk(tmp_path / "data")
        disk.make_directory(tmp_path / "data" / "journal")
        disk.open(tmp_path / "data" / "a", create=True).close()
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"data": 0o750, "journal": 0o750, "a": 0o640}


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("sync_writes", [False, True])
def test_a_file_is_opened_as_it_is_asked_for(tmp_path: Path, direct: bool, sync_writes: bool) -> None:
    if direct and not takes_direct_writes(tmp_path):
        pytest.skip("no direct I/O here")
    file = RealDisk().open(tmp_path / "a", create=True, direct=direct, sync_writes=sync_writes)
    flags = fcntl.fcntl(file.descriptor, fcntl.F_GETFL)
    assert (bool(flags & os.O_DIRECT), bool(flags & os.O_DSYNC)) == (direct, sync_writes)
    file.close()


def test_a_sync_asks_the_system_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda one: synced.append(os.readlink(f"/proc/self/fd/{one}")))
    disk = RealDisk(tmp_path)
    file = disk.open(tmp_path / "a", create=True)
    file.sync()
    assert synced == [str(tmp_path / "a")]
    disk.sync_directory(tmp_path)
    assert synced[1:] == [str(tmp_path)]
    file.close()


# --- direct I/O ------------------------------------------------------------------------------------------------------


def aligned(count: int) -> memoryview:
    return memoryview(mmap.mmap(-1, count * BLOCK_BYTES))


def takes_direct_writes(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / "probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    except OSError:
        return False
    try:
        return os.pwrite(descriptor, aligned(1), 0) == BLOCK_BYTES
    except OSError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(folder / "probe")


def test_whether_there_is_direct_io_is_tried_out_and_leaves_no_file(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    assert disk.can_direct(tmp_path) == takes_direct_writes(tmp_path)
    assert disk.names(tmp_path) == []


@pytest.mark.parametrize("call", ["open", "pwrite"])
@pytest.mark.parametrize(
    ("number", "refuses"), [(errno.EINVAL, True), (errno.EOPNOTSUPP, True), (errno.EIO, False)]
)
def test_a_file_system_that_refuses_direct_io_has_none_and_any_other_error_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, refuses: bool
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    disk = RealDisk(tmp_path)
    if call == "pwrite" and not takes_direct_writes(tmp_path):
        pytest.skip("no direct I/O here")
    monkeypatch.setattr(os, call, fails)
    if refuses:
        assert not disk.can_direct(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            disk.can_direct(tmp_path)
    monkeypatch.undo()
    assert disk.names(tmp_path) == []
