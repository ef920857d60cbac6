"""The mutants of a small module: which are found and which survive is known."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "mutants.py"

MODULE = """\
log = None

def larger(a, b):
    return a if a > b else b

def is_child(age):
    assert age >= 0
    return age < 18

def count(number):
    while number > 0:
        number -= 1

def double(number):
    return number + number

def into(box, value):
    box.append(value)

def never_called(a):
    return a + 1
"""

TESTS = """\
import subprocess, sys, threading
from toy import sums

def test_the_larger_one():
    assert (sums.larger(1, 2), sums.larger(2, 1), sums.larger(2, 2)) == (2, 2, 2)

def test_who_is_a_child():
    assert sums.is_child(17) and not sums.is_child(18)

def test_it_counts():
    sums.count(3)

def test_in_another_process():
    assert subprocess.check_output([sys.executable, "-c", "from toy.sums import *; print(double(2))"]) == b"4\\n"

def test_in_a_thread():
    box = []
    thread = threading.Thread(target=sums.into, args=(box, 1))
    thread.start()
    thread.join()
    assert box == [1]
"""

TABLE = """\
[sums]
path = "toy/sums.py"
tests = ["tests"]
[sums.equivalent]
"larger: return a if a > b else b  ->  return a if a >= b else b" = "of two that are the same either is the larger one"
"""

VERDICTS = {
    "is_child: return age < 18  ->  return age <= 18": "killed",
    "is_child: return age < 18  ->  return age < 19": "killed",
    "count: number > 0  ->  number >= 0": "survived",
    "count: number > 0  ->  number > 1": "survived",
    "count: number -= 1  ->  left out": "hung",
    "count: number -= 1  ->  number -= 2": "survived",
    "double: return number + number  ->  return number - number": "killed",
    "into: box.append(value)  ->  left out": "killed",
    "never_called: return a + 1  ->  return a - 1": "survived",
    "never_called: return a + 1  ->  return a + 2": "survived",
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    for name, text in (
        ("src/toy/__init__.py", ""),
        ("src/toy/sums.py", MODULE),
        ("tests/test_sums.py", TESTS),
        ("table.toml", TABLE),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(toy: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "sums", "--root", str(toy), "--table", str(toy / "table.toml")]
    return subprocess.run([*command, "--patience", "1", "--jobs", "2"], capture_output=True, text=True)


def test_what_tests_notice_is_killed_and_nothing_else(toy: Path) -> None:
    done = run(toy)
    assert done.returncode == 1, done.stderr
    results = toy / ".mutants" / "sums.jsonl"
    assert {
        line["mutant"]: line["how"] for line in map(json.loads, results.read_text().splitlines())
    } == VERDICTS
    assert "11 mutants, 1 equivalent, 10 run: 5 killed (1 of them hung), 5 survive" in done.stdout
    assert "src/toy/sums.py:21: never_called: return a + 1  ->  return a - 1" in done.stdout

    again = run(toy)
    assert len(results.read_text().splitlines()) == len(VERDICTS), "what is known is not tried again"
    assert again.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]


def test_a_table_that_names_what_is_not_there_is_no_good_one(toy: Path) -> None:
    (toy / "table.toml").write_text(TABLE + '"larger: a < b  ->  a <= b" = "it was once"\n')
    assert "no mutant of this name: larger: a < b  ->  a <= b" in run(toy).stderr
