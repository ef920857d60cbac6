"""Pulsar's own pulsar-admin: every command that it has, in one pulsar-shell, and what it is to say (`pulsar-admin/`).

A command is a test; it passes when all steps with it go as they are written down.  The reference page
`docs/reference/pulsar-admin.md` lists the commands by what is written down there.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import brokers
import fetch
import pulsar
from open_transaction import open_transaction
from outcomes import Outcome, Status
from pulsar_admin_steps import FILE, VERSION, Step, steps
from task import Task

NAME = "pulsar-admin"
DETAIL_MAX = 300
SHELL_TIMEOUT_S = 900
PEERS_HOME = Path(
    os.environ.get("PEERS_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar-peers"
)
_EXECUTING = re.compile(r"^\[\d+/\d+\] Executing .*\n", re.MULTILINE)
# Sinks and sources are declared, and not run.
_PROFILE = brokers.Profile({}, magnetar_only={"pipelines.worker.enabled": "false"})
_SCHEMA = '{"type": "STRING", "schema": "", "properties": {}}'
_KNOWN = "persistent://public/default/known"


def version() -> str:
    return VERSION


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    if not task.concerns_named_tests:
        return None
    task.refuse_bootstrap("this suite starts its broker itself")
    script = brokers.peer("pulsar")
    if script is None:
        raise fetch.NotHere("needs Java and the scripts that fetch Pulsar's tools (MAGNETAR_PEERS): skipped")
    fetch.quietly([str(script), "install"])
    print(f"== {NAME}", flush=True)
    all_steps = steps(FILE.read_text())  # each needs what those before it have made
    with brokers.magnetar_with_pulsar(_PROFILE, task.logs / "server.log") as addresses:
        began = time.monotonic()
        printed = _run(all_steps, addresses, task.logs / "shell.txt")
        seconds = time.monotonic() - began
    found = [
        one
        for one in judged(zip(all_steps, printed, strict=True), seconds / len(all_steps))
        if not task.words or any(word in one.test_id for word in task.words)
    ]
    for outcome in found:
        task.report(outcome)
    return found


def judged(printed: Iterable[tuple[Step, str]], seconds: float) -> list[Outcome]:
    """One outcome for each command: its first step that went wrong, or that none did."""
    problems: dict[str, list[str]] = {}
    for step, output in printed:
        problem = step.problem(output)
        if step.is_of_admin or problem:
            told = problems.setdefault(step.test_id, [])
            if problem:
                told.append(f"{step.command}: {' / '.join(problem.split())}")
    return [
        Outcome(
            test_id,
            Status.FAILED if told else Status.PASSED,
            seconds,
            told[0][:DETAIL_MAX] if told else "",
        )
        for test_id, told in problems.items()
    ]


def _run(all_steps: Sequence[Step], addresses: brokers.Addresses, log: Path) -> list[str]:
    """What each step prints."""
    client = pulsar.Client(addresses.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    known = client.create_producer(_KNOWN).send(b"known")
    client.close()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "schema.json").write_text(_SCHEMA)
        values = {
            "web": addresses.http,
            "pulsar": addresses.pulsar,
            "broker": addresses.http.removeprefix("http://"),
            "files": home,
            "ledger": known.ledger_id(),
            "entry": known.entry_id(),
            "transaction": open_transaction(addresses.pulsar),
        }
        script, settings = folder / "commands", folder / "client.conf"
        script.write_text("".join(f"{step.line(values)}\n" for step in all_steps))
        settings.write_text(f"webServiceUrl={addresses.http}\nbrokerServiceUrl={addresses.pulsar}\n")
        shell = PEERS_HOME / f"apache-pulsar-{VERSION}" / "bin" / "pulsar-shell"
        options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Duser.home={home}"
        try:
            done = subprocess.run(
                [str(shell), "-c", str(settings), "-np", "-f", str(script)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,  # so that a refusal stands behind its command
                text=True,
                timeout=SHELL_TIMEOUT_S,
                check=False,
                env={**os.environ, "PULSAR_LOG_DIR": home, "JAVA_TOOL_OPTIONS": options},
            )
        except subprocess.TimeoutExpired:
            raise fetch.BrokerFailed(f"pulsar-shell was not done within {SHELL_TIMEOUT_S} s") from None
    log.write_text(done.stdout)
    _, *printed = _EXECUTING.split(done.stdout.removesuffix("Goodbye!\n"))
    if len(printed) != len(all_steps):
        raise fetch.SetupFailed(f"pulsar-shell did not run all of {len(all_steps)} steps: see {log}")
    return printed
