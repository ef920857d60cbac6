"""`run.py` itself, with suites that only say how they went."""

import time
from collections.abc import Callable
from pathlib import Path

import fetch
import pytest
import run
import scorecard
from outcomes import Outcome, Status
from task import Task

WAIT_S = 60.0
Execute = Callable[[Task], list[Outcome] | None]


def passes(task: Task) -> list[Outcome]:
    outcome = Outcome("one", Status.PASSED, 0.1)
    task.report(outcome)
    return [outcome]


def fails(_task: Task) -> list[Outcome]:
    return [Outcome("one", Status.FAILED, 0.1, "boom")]


def loses_its_broker(_task: Task) -> list[Outcome]:
    raise fetch.BrokerFailed("it ended with -9")


def cannot_be_built(_task: Task) -> list[Outcome]:
    raise fetch.SetupFailed("needs gcc")


def lacks_a_tool(_task: Task) -> list[Outcome]:
    raise fetch.NotHere("go not found: skipped")


def has_no_such_test(_task: Task) -> None:
    return None


def meets(name: str, other: str) -> Execute:
    def execute(task: Task) -> list[Outcome]:
        (task.work / name).touch()
        late = time.monotonic() + WAIT_S
        while not (task.work / other).exists():
            if time.monotonic() > late:
                raise fetch.SetupFailed(f"{other} did not run beside it")
            time.sleep(0.01)
        return [Outcome("one", Status.PASSED, 0.1)]

    return execute


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs suites of these names, of which test `one` is to pass."""

    def start(*words: str, **suites: Execute) -> int:
        for name in suites:
            (tmp_path / name).mkdir()
            (tmp_path / name / "allow.txt").write_text("one\n")
        of_name = {name: run.Suite(name, lambda: "1", ("magnetar",), one) for name, one in suites.items()}
        monkeypatch.setattr(run, "SUITES", of_name)
        monkeypatch.setattr(run, "HERE", tmp_path)
        monkeypatch.setattr(scorecard, "PAGE", tmp_path / "page.md")
        return run.main(["--work", str(tmp_path / "work"), "--bootstrap", "127.0.0.1:1", *words])

    return start


def test_each_line_names_its_suite(runs: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert runs(first=passes, second=passes) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "  passed  first one (0.1 s)" in lines
    assert "  passed  second one (0.1 s)" in lines
    assert "second: 1 passed, 0 failed, 0 skipped" in lines
    assert lines[-1] == "2 passed, 0 failed"


def test_two_suites_run_at_a_time(runs: Callable[..., int]) -> None:
    assert runs(first=meets("first.here", "second.here"), second=meets("second.here", "first.here")) == 0


def test_what_broke_the_run_comes_last(runs: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert runs(a=fails, b=loses_its_broker, c=cannot_be_built, d=lacks_a_tool, e=passes) == 1
    *_, broker, could_not, failed, logs, total = capfd.readouterr().out.splitlines()
    assert broker == "THE BROKER FAILED: b is not over: it ended with -9"
    assert could_not == "COULD NOT RUN: c: needs gcc"
    assert failed == "FAILED: one: boom"
    assert logs.startswith("logs: ")
    assert total == "1 passed, 1 failed"


def test_missing_tool_breaks_nothing(runs: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert runs(a=lacks_a_tool) == 0
    assert "a: go not found: skipped" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["unheard-of"], "no test is called unheard-of"), (["--broker", "kafka", "a"], "no test of a can run")],
)
def test_nothing_to_run_is_said(
    runs: Callable[..., int], capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert runs(*words, a=has_no_such_test) == 2
    assert said in capfd.readouterr().out
