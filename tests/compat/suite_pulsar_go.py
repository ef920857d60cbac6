"""Pulsar's Go client and Go admin client, which pulsarctl and operators are made of: what they create and get."""

import shutil
from pathlib import Path

import brokers
import fetch
import scenarios
from outcomes import Outcome
from task import Task

NAME = "pulsar-go"
SOURCE = Path(__file__).resolve().parent / NAME


def version() -> str:
    """Of the client under test, as `go.mod` pins it."""
    lines = (SOURCE / "go.mod").read_text().splitlines()
    (found,) = (line.split()[1] for line in lines if "apache/pulsar-client-go " in line)
    return found.removeprefix("v")


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    return scenarios.execute(task, NAME, prepare, command_of)


def command_of(program: Path, addresses: brokers.Addresses) -> list[str]:
    return [str(program), addresses.pulsar, addresses.http]


def prepare(work: Path) -> Path:
    """Build the program; its modules are pinned, and checked, by `go.sum`."""
    if shutil.which("go") is None:
        raise fetch.NotHere("go not found: skipped")
    program = work / NAME / "scenarios"
    program.parent.mkdir(parents=True, exist_ok=True)
    fetch.quietly(["go", "build", "-o", str(program), "."], cwd=SOURCE)
    return program
