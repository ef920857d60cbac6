"""Workers of pytest-xdist make what a module's tests share once, and begin with different modules."""

from pathlib import Path

from tests.testing.inner_run import run_tests

CONFTEST = "from tests.conftest import pytest_configure\n"
MODULE = """import os
import time
from pathlib import Path

import pytest


def note(what):
    with (Path(__file__).parent / what).open("a") as notes:
        notes.write(f"{os.environ['PYTEST_XDIST_WORKER']} {Path(__file__).stem}\\n")


note("imported")


@pytest.fixture(scope="module")
def server():
    note("started")


@pytest.mark.parametrize("number", range(10))
def test_it(server, number):
    pass
"""
ALONE = """

@pytest.fixture
def own():
    pass


@pytest.mark.parametrize("number", range(40))
def test_alone(own, number):
    note("alone")
    until = time.monotonic() + 60
    while {line.split()[0] for line in (Path(__file__).parent / "alone").open()} != {"gw0", "gw1"}:
        assert time.monotonic() < until, "one worker has them all"
        time.sleep(0.01)
"""
FILE = """from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("all")


def note(what):
    with (Path(__file__).parent / "ran").open("a") as notes:
        notes.write(f"{Path(__file__).stem} {what}\\n")


def test_it():
    note("first")
"""
SLOW = """

@pytest.mark.slow
def test_that_takes_long():
    note("second")
"""


def test_what_is_made_for_a_module_is_made_by_one_worker_and_each_begins_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    names = ["test_a", "test_b", "test_c", "test_d"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(MODULE + (ALONE if name == "test_a" else ""))
    assert "80 passed" in run_tests(tmp_path, "2"), "tests that share nothing are handed out one by one"
    noted = {what: _rows(tmp_path / what) for what in ("imported", "started")}
    assert sorted(name for _, name in noted["started"]) == names
    by_worker = {
        worker: [name for by, name in noted["imported"] if by == worker] for worker in ("gw0", "gw1")
    }
    assert by_worker == {
        "gw0": ["test_a", "test_c", "test_b", "test_d"],
        "gw1": ["test_b", "test_d", "test_a", "test_c"],
    }


def test_where_files_are_handed_out_those_with_slow_tests_come_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-loadscope-reorder\nmarkers = slow\n")
    for name in ("test_a", "test_b", "test_c"):
        (tmp_path / f"{name}.py").write_text(FILE + (SLOW if name == "test_b" else ""))
    assert "4 passed" in run_tests(tmp_path, "1", "loadfile")
    assert _rows(tmp_path / "ran") == [
        ["test_b", "first"],
        ["test_b", "second"],
        ["test_a", "first"],
        ["test_c", "first"],
    ]


def _rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]
