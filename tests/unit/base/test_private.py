"""What other accounts of the machine may do with files and folders that have secrets in them: nothing."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.base.private import keep_private, new_private_folder, private_file, private_folder


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_and_what_an_earlier_version_left_is_closed_to_others(tmp_path: Path) -> None:
    for name in ("fresh", "old"):
        folder, file = tmp_path / name, tmp_path / name / "file"
        if name == "old":
            folder.mkdir(0o755)
            file.write_text("x")
        private_folder(folder)
        private_file(file)
        assert (mode(folder), mode(file)) == (0o750, 0o640)
    assert (tmp_path / "old" / "file").read_text() == "x"
    keep_private(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_folder_that_the_operator_chose_stays_as_it_is(tmp_path: Path) -> None:
    """`magnetar worker --checkpoint-dir /tmp`, by root."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    new_private_folder(shared)
    assert mode(shared) == 0o1777
    new_private_folder(shared / "fresh")
    assert mode(shared / "fresh") == 0o750
