"""What decodes while there is no compiled code."""

from pathlib import Path

import pytest

from magnetar.wire.columns import decode, engine
from magnetar.wire.compiling import CompiledModules
from tests.unit.wire.convert.records import Sent, kafka_batch
from tests.unit.wire.no_numba import hide_numba

from .stored import Log


def test_without_numba_python_decodes_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()  # of the fixture that chooses
    hide_numba(monkeypatch)
    monkeypatch.setattr(
        engine, "_compiled", CompiledModules(str(tmp_path / "engine.py"), ["no_such_module"], [], "slow")
    )
    log = Log()
    log.kafka(kafka_batch([Sent(1, b"k", bytes(9 << 20))]))
    assert decode(log.data).columns.count == 1
    assert "numba is not installed" in caplog.text


def test_python_serves_while_there_is_something_to_compile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()  # of the fixture that chooses
    compiled = CompiledModules(str(tmp_path / "engine.py"), ["no_such_module"], [], "slow")
    monkeypatch.setattr(compiled, "start", lambda: None)  # on its way, and not there yet
    monkeypatch.setattr(engine, "_compiled", compiled)
    monkeypatch.setattr(engine, "_patience", engine._Patience())  # whatever this process has decoded before
    log = Log()
    log.kafka(kafka_batch([Sent(1, b"k", b"v")]))
    assert decode(log.data).columns.count == 1
    assert not engine.is_compiled()
