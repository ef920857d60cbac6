"""What converts while there is no compiled code, or none can be had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.wire.compiling import CompiledModules
from magnetar.wire.convert import engine, kafka_to_pulsar
from tests.unit.wire.no_numba import hide_numba

from .records import Sent, kafka_batch


def test_without_numba_python_converts_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hide_numba(monkeypatch)
    for name in ("engine.py", "another.py"):
        compiled = CompiledModules(str(tmp_path / name), ["no_such_module"], [], "they stay slow")
        monkeypatch.setattr(engine, "_compiled", compiled)
        assert not engine.load()
        assert kafka_to_pulsar(kafka_batch([Sent(1, b"k", b"v")] * 50))
    (said,) = caplog.messages
    assert "numba is not installed" in said


def test_nothing_of_numba_is_imported_before_the_first_conversion() -> None:
    script = (
        "import sys, magnetar.server.standalone, magnetar.wire.convert.batches;"
        "sys.exit('numba' in sys.modules or 'numpy' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0
