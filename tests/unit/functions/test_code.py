"""The code of a function: archives unpack into their own folder, and what cannot be unpacked is one sentence."""

import random
import stat
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.functions.code import CodeError, open_code


@pytest.fixture(autouse=True)
def same_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work" / "code.zip"


def everything(folder: Path) -> set[str]:
    return {str(one.relative_to(folder)) for one in folder.rglob("*") if not one.is_dir()}


def test_nothing_is_written_outside_of_the_folder(file: Path, tmp_path: Path) -> None:
    names = [
        "../up.py",
        "../../../../up.py",
        f"{tmp_path}/absolute.py",
        "a/../../b.py",
        "..\\back.py",
        "link",
        "link/in.py",
    ]
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            if name == "link":
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            else:
                entry.external_attr = 0o600 << 16
            archive.writestr(entry, str(tmp_path) if name == "link" else "x = 1")
    with pytest.raises(CodeError):  # a file and a folder of one name
        open_code(file)
    unpacked = everything(tmp_path) - {"work/code.zip"}
    assert unpacked
    assert all(one.startswith("work/unpacked/") for one in unpacked), unpacked
    assert not any(one.is_symlink() for one in tmp_path.rglob("*"))


def test_an_archive_that_would_fill_the_disk_is_not_unpacked(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(257):
            archive.writestr(f"{number}", bytes(1 << 20))
    assert file.stat().st_size < 1 << 20
    with pytest.raises(CodeError, match=r"^code.zip has more than 268435456 bytes when it is unpacked$"):
        open_code(file)
    assert everything(file.parent) == {"code.zip"}


def test_damage_is_one_sentence(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"m{number}.py", "x = 1\n" * 100)
    good = file.read_bytes()
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    refusals = []
    for number in range(300):
        data = bytearray(good[: dice.randrange(1, len(good))] if number % 10 == 0 else good)
        for _ in range(dice.randint(1, 3)):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        file.write_bytes(data)
        try:
            open_code(file)
        except CodeError as error:
            refusals.append(str(error))
        except Exception as error:
            raise AssertionError(f"seed {seed}, round {number}") from error
    assert len(refusals) > 100
    assert not any("\n" in one for one in refusals)
