import os
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


def test_a_folder_that_is_not_there_is_the_callers_to_explain(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "nowhere" / "lock")
