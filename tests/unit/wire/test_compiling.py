"""How compiled code comes to be: where it is kept, and what happens when it cannot be had."""

import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.wire.compiling import CompiledModules

DOUBLE = """
from numba import njit, types

@njit(types.int64(types.int64), cache=True)
def double(number):
    return 2 * number
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a module that is compiled when it is imported."""
    folder = tmp_path / "some_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "compiled_double.py").write_text(DOUBLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    for name in ("some_package", "some_package.compiled_double"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


def modules_of(package: Path) -> CompiledModules:
    return CompiledModules(
        str(package / "engine.py"), ["some_package.compiled_double"], ["compiled_double.py"], "it stays slow"
    )


def test_modules_are_compiled_once_and_kept_beside_their_sources(package: Path) -> None:
    modules = modules_of(package)
    assert modules.load()
    assert modules.modules["compiled_double"].double(4) == 8
    folder = Path(modules.folder() or "")
    assert folder.parent == package / "__pycache__"
    kept = {
        path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix in (".nbc", ".complete")
    }
    assert {path.suffix for path in kept} == {".nbc", ".complete"}
    assert modules_of(package).load()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_other_sources_have_another_folder(package: Path) -> None:
    before = modules_of(package).folder()
    (package / "compiled_double.py").write_text(DOUBLE + "\n")
    assert modules_of(package).folder() != before


def test_what_was_kept_is_loaded_without_a_thread(package: Path) -> None:
    assert not modules_of(package).load_kept()
    assert modules_of(package).load()
    modules = modules_of(package)
    assert modules.load_kept()
    assert modules.finished.is_set()
    assert modules.load(), "it is there for callers of `load`, too"


def test_to_begin_loads_what_was_kept_at_once_and_else_does_not_wait(package: Path) -> None:
    modules = modules_of(package)
    modules.begin()
    assert modules.load(), "it was on its way"
    again = modules_of(package)
    again.begin()
    assert again.finished.is_set()
    assert again.is_loaded


def test_what_was_not_kept_can_still_be_compiled(package: Path) -> None:
    modules = modules_of(package)
    assert not modules.load_kept()
    assert modules.load()


def test_the_users_own_folder_is_used(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert modules_of(package).folder() == str(tmp_path)


def test_where_nothing_can_be_written_there_is_no_folder(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # no folder can be made below a file
    modules = CompiledModules(str(tmp_path / "file" / "engine.py"), [], [], "")
    assert modules.folder() is None


def test_modules_that_cannot_be_loaded_are_missed_and_that_is_said(
    package: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", _no_child)
    (package / "compiled_double.py").write_text("import no_such_module")
    modules = modules_of(package)
    assert not modules.load()
    assert "it stays slow" in caplog.text
    assert not list(Path(modules.folder() or "").glob("*.complete"))


class _no_child:
    returncode = 1

    def __init__(self, *given: object, **named: object) -> None:
        pass

    def __enter__(self) -> "_no_child":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def wait(self) -> None:
        pass
