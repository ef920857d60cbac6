"""What is read of callgrind's files and of a console script; the counting itself needs valgrind and minutes."""

from pathlib import Path

import pytest

from bench.instructions import interpreter_of, total
from bench.process import RunFailed


def test_the_total_of_a_file_is_its_largest() -> None:
    assert total("events: Ir\nsummary: 12\nfn=(1) main\n1 12\ntotals: 345\n") == 345
    with pytest.raises(RunFailed, match="no total"):
        total("events: Ir\n")


def test_a_script_is_run_with_the_python_that_it_names(tmp_path: Path) -> None:
    script = tmp_path / "magnetar"
    script.write_text("#!/opt/venv/bin/python3 \nimport sys\n")
    assert interpreter_of(script) == "/opt/venv/bin/python3"
    script.write_text("\x7fELF")
    with pytest.raises(RunFailed, match="no Python script"):
        interpreter_of(script)
