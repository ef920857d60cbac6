"""The end of a run names the files that took most of the workers' time, with workers of pytest-xdist and without."""

import re
from pathlib import Path

import pytest

from tests.budget import FILES, Cost, lines
from tests.testing.inner_run import run_tests

CONFTEST = (
    "from tests import budget\nbudget.WORTH_TELLING_S = 0\nfrom tests.conftest import pytest_configure\n"
)
BUSY = """import time

def test_it():
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
"""
WAITING = "import time\n\ndef test_it():\n    time.sleep(0.3)\n"


def test_the_dearest_files_come_first_and_the_whole_last() -> None:
    costs = {f"f{number}": Cost(float(number), 0.5) for number in range(FILES + 2)}
    shown = [line.split() for line in lines(costs)]
    assert [row[-1] for row in shown[:-1]] == [f"f{number}" for number in range(FILES + 1, 1, -1)]
    assert shown[0] == ["11.0", "s", "0.5", "s", "of", "processor", "f11"]
    assert " ".join(shown[-1]) == "66.0 s 6.0 s of processor all 12 files"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_tells_files_that_compute_from_those_that_wait(tmp_path: Path, workers: str) -> None:
    for name, text in (("conftest", CONFTEST), ("test_busy", BUSY), ("test_waiting", WAITING)):
        (tmp_path / f"{name}.py").write_text(text)
    shown = run_tests(tmp_path, workers)
    found = re.findall(r"^ +([\d.]+) s +([\d.]+) s of processor  (.*)$", shown, re.MULTILINE)
    spent = {name: (float(seconds), float(cpu)) for seconds, cpu, name in found}
    assert set(spent) == {"test_busy.py", "test_waiting.py", "all 2 files"}
    assert spent["test_busy.py"][1] >= 0.3
    assert spent["test_waiting.py"][0] >= 0.3
    assert spent["test_waiting.py"][1] < 0.3
