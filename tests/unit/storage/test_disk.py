"""The machine's disk, as the store uses it."""

from pathlib import Path

import pytest

from magnetar.storage.local.disk import RealDisk


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
