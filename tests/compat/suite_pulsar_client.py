"""pulsar-client-python's own tests, against the wheel that `make dev` installs.

No package holds their source, so `PULSAR_CLIENT_PYTHON` names a checkout of apache/pulsar-client-python
(or a folder with its `tests`); without it the suite is skipped.  The tests know one broker, on ports 6650, 6651
and 8080 of localhost: `fixed_ports.py` starts it, in a network of its own where the kernel lets us have one.

Left out: `oauth2_test` (an OAuth server on the internet) and `auto_cluster_failover_test` (docker).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import fetch
import fixed_ports
import junit
from outcomes import Outcome, Status, with_second_try
from task import Task, names_of

NAME = "pulsar-client-python"
VARIABLE = "PULSAR_CLIENT_PYTHON"
FILES = (
    *("pulsar_test.py", "schema_test.py", "asyncio_test.py", "table_view_test.py", "reader_test.py"),
    *("custom_logger_test.py", "debug_logger_test.py", "interrupted_test.py"),
)
TEST_TIMEOUT_S = 120
SUITE_TIMEOUT_S = 1200

# A client without a name produces into a tenant that there is none of, and wants to hear that: where rules hold, it
# hears that it may not, whether there is one or not.
WANT_OPEN = ("asyncio_test::AsyncioTest::test_create_producer_failure",)
NEEDS_OWN_NETWORK = {
    "pulsar_test::PulsarTest::test_connect_timeout": "wants a network of its own",
}


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    if not task.concerns_named_tests:
        return None
    source = prepare(task.work)
    task.refuse_bootstrap("these tests want a fresh broker at ports of their own")
    print(f"== {NAME}, client {version()}", flush=True)

    def once(task: Task, words: Sequence[str]) -> list[Outcome]:
        return run(source, task.broker, task.logs, words, task.report)

    outcomes = once(task, task.words)
    return with_second_try(outcomes, task.allowed, lambda ids: once(task.again, names_of(ids)))


def version() -> str:
    """Of the client under test, as installed."""
    try:
        return metadata.version("pulsar-client")
    except metadata.PackageNotFoundError:
        raise fetch.SetupFailed("pulsar-client is not installed: run `make dev`") from None


def prepare(work: Path) -> Path:
    """A copy of the checkout's tests in `work`: what their set-up script makes is written into it."""
    given = os.environ.get(VARIABLE)
    if not given:
        raise fetch.NotHere(f"{VARIABLE} does not name a checkout of apache/pulsar-client-python: skipped")
    tests = Path(given).expanduser()
    tests = tests / "tests" if (tests / "tests").is_dir() else tests
    if missing := [name for name in FILES if not (tests / name).exists()]:
        raise fetch.SetupFailed(f"{tests} has no {', '.join(missing)}")
    copy = work / "pulsar-client-python-tests"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tests, copy)
    return copy


def run(
    source: Path, broker: str, logs: Path, wanted: Sequence[str], report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run the suite beside fresh brokers; `wanted` are parts of test names, none means all."""
    isolated = _can_unshare()
    left_out = {} if isolated else NEEDS_OWN_NETWORK
    outcomes: list[Outcome] = []
    # A pytest for each of two brokers: one that asks who clients are, and one that does not.
    tests = [
        *FILES,
        *(word for test_id in (*left_out, *WANT_OPEN) for word in ("--deselect", _node(test_id))),
    ]
    for of_broker, chosen in (((), tests), (("--open",), [_node(one) for one in WANT_OPEN])):
        command = ["unshare", "-rn"] if isolated else []
        command += [sys.executable, str(Path(fixed_ports.__file__)), "--broker", broker, "--logs", str(logs)]
        command += ["--tests", str(source), *of_broker]
        command += ["--own-network"] if isolated else []
        command += ["--", sys.executable, "-m", "pytest", "-q", *chosen]
        command += flags(source)
        if wanted:
            command += ["-k", " or ".join(wanted)]
        outcomes += junit.run(
            f"{NAME}'s suite",
            command,
            source,
            logs / f"output{''.join(of_broker)}.txt",
            SUITE_TIMEOUT_S,
            setup_failed=fixed_ports.SETUP_FAILED,
        )
    if not wanted:
        outcomes += [Outcome(test_id, Status.SKIPPED, 0.0, why) for test_id, why in left_out.items()]
    for outcome in outcomes:
        report(outcome)
    return outcomes


def flags(source: Path) -> list[str]:
    """What keeps pytest to the suite's own folder, which is inside ours.

    Our settings turn the suite's 25 warnings into errors, and our conftest imports what is not there.
    """
    places = ["-c", os.devnull, f"--rootdir={source}", f"--confcutdir={source}"]
    return [*places, "-p", "no:randomly", "-p", "no:xdist", f"--timeout={TEST_TIMEOUT_S}"]


def _node(test_id: str) -> str:
    """A test as pytest has it."""
    file, _, rest = test_id.partition("::")
    return f"{file}.py::{rest}"


def _can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0
