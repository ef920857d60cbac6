"""How compiled code comes to be: where it is kept, and what happens when it cannot be had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.wire.convert import engine, kafka_to_pulsar

from .records import Sent, kafka_batch


def test_compiled_code_is_kept_beside_its_sources_under_their_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    folder = Path(engine._cache_folder() or "")
    assert folder.parent == Path(engine.__file__).parent / "__pycache__"
    assert folder.is_dir()


def test_the_users_own_folder_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert engine._cache_folder() == str(tmp_path)


def test_where_nothing_can_be_written_there_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # no folder can be made below a file
    monkeypatch.setattr(engine, "__file__", str(tmp_path / "file" / "engine.py"))
    monkeypatch.setattr(engine, "_SOURCES", ())
    assert engine._cache_folder() is None


def test_without_numba_python_converts_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "compiled.nbc").touch()  # nothing is compiled for this
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    loader = engine._Loader()
    monkeypatch.setattr(engine, "_loader", loader)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not engine.load()
    assert "stay slow" in caplog.text
    assert kafka_to_pulsar(kafka_batch([Sent(1, b"k", b"v")] * 50))


def test_nothing_of_numba_is_imported_before_the_first_conversion() -> None:
    script = (
        "import sys, magnetar.server.standalone, magnetar.wire.convert.batches;"
        "sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0
