import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.lockfile import DirectoryLock


def test_a_held_lock_names_its_holder_and_a_released_one_can_be_taken(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("4294967295999 left by an earlier process\n")
    held = DirectoryLock(path)
    assert path.read_text() == f"{os.getpid()}\n"
    with pytest.raises(ConfigError, match=f"data dir {tmp_path} is in use by pid {os.getpid()}:"):
        DirectoryLock(path)
    held.release()
    held.release()
    DirectoryLock(path).release()


def test_a_lock_file_that_is_removed_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = DirectoryLock(path)
    path.unlink()
    with pytest.raises(ConfigError, match=f"data dir {tmp_path} is in use by pid unknown:"):
        DirectoryLock(path)
    assert not path.exists()
    held.release()
    DirectoryLock(path).release()


def test_a_file_system_that_locks_no_directories_has_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def refuse(descriptor: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "as NFS says")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", refuse)
    held = DirectoryLock(tmp_path / "lock")
    with pytest.raises(ConfigError, match=f"in use by pid {os.getpid()}:"):
        DirectoryLock(tmp_path / "lock")
    held.release()


def test_a_folder_that_is_not_there_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "nowhere" / "lock")
