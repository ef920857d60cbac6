"""The first worker takes unit tests from the beginning, the others what waits; all is done in the end."""

from pathlib import Path

import pytest

from tests.scheduling import COMPUTES
from tests.testing.inner_run import run_tests

CONFTEST = "from tests.conftest import pytest_configure\n"
MODULE = """import os
import time
from pathlib import Path

import pytest


def note(what):
    with Path({notes!r}).open("a") as notes:
        notes.write(f"{{os.environ['PYTEST_XDIST_WORKER']}} {kind} {{what}}\\n")
    time.sleep(0.02)


@pytest.fixture(scope="module")
def shared():
    pass


@pytest.mark.parametrize("number", range(10))
def test_alone(number):
    note("alone")


@pytest.mark.parametrize("number", range(10))
def test_of_a_group(shared, number):
    note("group")


@pytest.mark.slow
def test_slow():
    note("slow")
"""


@pytest.mark.parametrize("workers", ["1", "3"])
def test_one_worker_computes_while_the_others_wait(tmp_path: Path, workers: str) -> None:
    notes = tmp_path / "notes"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-loadscope-reorder\nmarkers = slow\n")
    for kind, folder in (
        ("computes", tmp_path / "tests" / "unit"),
        ("waits", tmp_path / "tests" / "clients"),
    ):
        folder.mkdir(parents=True)
        (folder / f"test_{kind}.py").write_text(MODULE.format(notes=str(notes), kind=kind))
    assert "42 passed" in run_tests(tmp_path, workers)
    rows = [line.split() for line in notes.read_text().splitlines()]
    assert len(rows) == 42
    by_worker = {worker: [row[1:] for row in rows if row[0] == worker] for worker, *_ in rows}
    assert len(by_worker) == int(workers)
    kind, what = by_worker.pop(COMPUTES)[0]
    assert kind == "computes"
    assert what != "slow"
    for first, *_ in by_worker.values():
        assert first == ["waits", "group"] or first[1] == "slow", "groups and slow tests come first"
