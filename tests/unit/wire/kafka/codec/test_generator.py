"""The committed modules are what the tables say, and the check notices when they are not."""

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from magnetar.wire.kafka.error_codes import ErrorCode

GENERATOR = Path(__file__).resolve().parents[5] / "tools" / "generate_kafka.py"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_kafka", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = sys.path.copy()
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    vars(module)["outputs"] = functools.cache(vars(module)["outputs"])  # half a second each time
    return module


def test_the_committed_modules_are_up_to_date(
    generator: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generator.main(["--check"]) == 0, capsys.readouterr().err


def test_generating_twice_changes_nothing(generator: ModuleType, tmp_path: Path) -> None:
    assert generator.outputs() == generator.outputs.__wrapped__()
    assert generator.main(["--target", str(tmp_path)]) == 0
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert generator.main(["--target", str(tmp_path)]) == 0
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times
    assert generator.main(["--check", "--target", str(tmp_path)]) == 0


@pytest.mark.parametrize("change", ["edited", "missing", "stale"])
def test_the_check_names_the_file_that_drifted(
    generator: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    generator.main(["--target", str(tmp_path)])
    path = tmp_path / ("produce.py" if change != "stale" else "gone_api.py")
    if change == "missing":
        path.unlink()
    else:
        path.write_text("# touched\n" if change == "stale" else path.read_text() + "\n")
    capsys.readouterr()
    assert generator.main(["--check", "--target", str(tmp_path)]) == 1
    assert path.name in capsys.readouterr().err
    assert generator.main(["--target", str(tmp_path)]) == 0
    assert generator.main(["--check", "--target", str(tmp_path)]) == 0


def test_error_codes_are_the_protocols() -> None:
    theirs = {(code.name.upper(), int(code), code.retriable) for code in KioErrorCode}
    assert {(code.name, int(code), code.retriable) for code in ErrorCode} == theirs
