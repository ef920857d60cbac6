"""Pulsar's Go client and Go admin client, which pulsarctl and operators are made of: what they create, and are told."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import brokers
import fetch
import scenarios
from outcomes import Outcome, with_second_try
from task import Task, names_of

NAME = "pulsar-go"
SOURCE = Path(__file__).resolve().parent / NAME
TIMEOUT_S = 300.0


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    if not task.concerns_named_tests:
        return None
    program = prepare(task.work)
    task.refuse_bootstrap("this suite starts its broker itself")
    print(f"== {NAME}", flush=True)
    start = brokers.magnetar_with_pulsar if task.broker == "magnetar" else brokers.apache_pulsar

    def once(task: Task, words: Sequence[str]) -> list[Outcome]:
        with start(brokers.Profile({}), task.logs / "server.log") as addresses:
            command = [str(program), addresses.pulsar, addresses.http, *words]
            log = task.logs / "scenarios.txt"
            return scenarios.run(command, program.parent, log, TIMEOUT_S, task.report)

    outcomes = once(task, task.words)
    return with_second_try(outcomes, task.allowed, lambda ids: once(task.again, names_of(ids)))


def prepare(work: Path) -> Path:
    """Build the program; its modules are pinned, and checked, by `go.sum`."""
    if shutil.which("go") is None:
        raise fetch.NotHere("go not found: skipped")
    program = work / NAME / "scenarios"
    program.parent.mkdir(parents=True, exist_ok=True)
    fetch.quietly(["go", "build", "-o", str(program), "."], cwd=SOURCE)
    return program
