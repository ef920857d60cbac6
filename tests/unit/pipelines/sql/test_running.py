"""One query at a time, and the way out of it."""

import io
import os
import signal
import threading
from typing import Any, cast

import pytest
from rich.console import Console

from magnetar.pipelines.sql.errors import QueryCancelled
from magnetar.pipelines.sql.running import Runner

WAIT_S = 20.0


class Job:
    """Stands for a job of Spark's, and for the session and context that it runs in."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.groups: list[str] = []
        self.cancelled = threading.Event()
        self.cancels: list[str] = []
        self.tasks = 0

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:
        assert interruptOnCancel
        self.groups.append(group)

    def cancelJobGroup(self, group: str) -> None:
        self.cancels.append(group)
        self.cancelled.set()

    # Spark's status tracker
    def statusTracker(self) -> "Job":
        return self

    def getJobIdsForGroup(self, group: str) -> list[int]:
        assert group == self.groups[-1]
        return [7]

    def getJobInfo(self, job: int) -> Any:
        return type("Info", (), {"stageIds": [1, 2, 3]})

    def getStageInfo(self, stage: int) -> Any:
        self.tasks += 1
        return None if stage == 3 else type("Stage", (), {"numTasks": 4, "numCompletedTasks": stage})


def runner(job: Job, terminal: bool = False) -> tuple[Runner, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=80)
    return Runner(cast("Any", job), console), screen


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_query_runs_in_a_group_of_its_own() -> None:
    job = Job()
    runs, screen = runner(job)
    assert runs.run(lambda: 1) == 1
    assert runs.run(lambda: threading.current_thread() is not threading.main_thread()) is True
    assert len(set(job.groups)) == 2
    assert screen.getvalue() == ""
    runs.close()


def test_what_a_query_raises_is_raised() -> None:
    runs, _ = runner(Job())
    with pytest.raises(ZeroDivisionError):
        runs.run(lambda: 1 // 0)
    runs.close()


def test_ctrl_c_cancels_the_query_and_the_next_one_runs() -> None:
    job = Job()
    runs, _ = runner(job)
    before = signal.getsignal(signal.SIGINT)

    def query() -> None:
        interrupt()
        assert job.cancelled.wait(WAIT_S)
        raise RuntimeError("as Spark says that a job was cancelled")

    with pytest.raises(QueryCancelled):
        runs.run(query)
    assert job.cancels[0] == job.groups[0]
    assert signal.getsignal(signal.SIGINT) is before
    assert runs.run(lambda: 2) == 2
    runs.close()


def test_a_query_that_ends_well_in_spite_of_ctrl_c_has_its_result() -> None:
    job = Job()
    runs, _ = runner(job)

    def query() -> int:
        interrupt()
        assert job.cancelled.wait(WAIT_S)
        return 3

    assert runs.run(query) == 3
    runs.close()


def test_a_second_ctrl_c_leaves() -> None:
    job = Job()
    runs, _ = runner(job)
    left = threading.Event()

    def query() -> None:
        interrupt()
        assert job.cancelled.wait(WAIT_S)
        interrupt()
        assert left.wait(WAIT_S)

    with pytest.raises(KeyboardInterrupt):
        runs.run(query)
    left.set()
    runs.close()


def test_progress_counts_tasks_on_a_terminal() -> None:
    job = Job()
    runs, screen = runner(job, terminal=True)
    shown = threading.Event()
    update = job.getStageInfo

    def seen(stage: int) -> Any:
        if job.tasks >= 6:
            shown.set()
        return update(stage)

    job.getStageInfo = seen  # type: ignore[method-assign]
    assert runs.run(lambda: shown.wait(WAIT_S)) is True
    assert "3 of 8 tasks" in screen.getvalue()
    runs.close()
