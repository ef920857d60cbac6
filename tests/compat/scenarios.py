"""Programs of scenarios in other languages: one line for each, `PASSED|FAILED name seconds text`."""

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import brokers
from outcomes import Outcome, Status, with_second_try
from task import Task, names_of

DETAIL_MAX = 200
TIMEOUT_S = 300.0


def execute(
    task: Task,
    title: str,
    prepare: Callable[[Path], Path],
    command_of: Callable[[Path, brokers.Addresses], Sequence[str]],
) -> list[Outcome] | None:
    """Run a suite that is one program: `prepare` makes it, `command_of` says how it is called.

    None if no test of the suite was asked for.
    """
    if not task.concerns_named_tests:
        return None
    program = prepare(task.work)
    task.refuse_bootstrap("this suite starts its broker itself")
    print(f"== {title}", flush=True)
    start = brokers.magnetar_with_pulsar if task.broker == "magnetar" else brokers.apache_pulsar

    def once(task: Task, words: Sequence[str]) -> list[Outcome]:
        with start(brokers.Profile({}), task.logs / "server.log") as addresses:
            command = [*command_of(program, addresses), *words]
            return run(command, program.parent, task.logs / "scenarios.txt", TIMEOUT_S, task.report)

    outcomes = once(task, task.words)
    return with_second_try(outcomes, task.allowed, lambda ids: once(task.again, names_of(ids)))


def run(
    command: Sequence[str], cwd: Path, log: Path, timeout_s: float, report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run the program to its end, or end it after `timeout_s`; what it never reached has no outcome.

    What it wrote to standard error is left in `log`.
    """
    outcomes: list[Outcome] = []
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        try:
            for line in process.stdout:
                if (outcome := outcome_of(line)) is not None:
                    outcomes.append(outcome)
                    report(outcome)
        except BaseException:
            process.kill()
            raise
        finally:
            late.cancel()
    return outcomes


def outcome_of(line: str) -> Outcome | None:
    """None for a line of any other form."""
    words = line.rstrip("\n").split(" ", 3)
    if words[0] not in ("PASSED", "FAILED") or len(words) != 4:
        return None
    status = Status.PASSED if words[0] == "PASSED" else Status.FAILED
    return Outcome(f"scenario::{words[1]}", status, float(words[2]), words[3][:DETAIL_MAX])
