"""kafka-python's own integration tests, over the wire, out of its source archive.

They find a broker through `KAFKA_URI`; `test/service.py`, which the archive leaves out, normally starts
one, so a stand-in that says "already running" takes its place.  SSL and SASL tests start brokers of
their own: they are left out here or skip themselves.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import fetch
import junit
from brokers import Profile
from outcomes import Outcome, with_second_try
from task import Task, names_of

NAME = "kafka-python"
VERSION = "3.0.12"
SHA256 = "4ccda3616b9aa5c353d74a97f2770d6cd1b950890d77ab0e8890e09a48eeed65"
TEST_TIMEOUT_S = 60
SUITE_TIMEOUT_S = 600

# A test has the client infer the broker's version from the advertised APIs and wants this very number.
BROKER_VERSION = "4.3.0"

PROFILE = Profile(
    settings={
        "node.id": "0",  # new partitions are assigned to broker 0 by number
        "num.partitions": "4",
        "auto.create.topics.enable": "true",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
    kafka_only={
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.min.session.timeout.ms": "1000",
    },
    # A test wants this key to have been set; the script that starts Kafka sets it, port 0 is the port in use.
    magnetar_only={"advertised.listeners": "PLAINTEXT://127.0.0.1:0"},
)

SERVICE = '''"""Stands in for the module that starts brokers: the broker already runs."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = dump_logs = open

    def wait_for(self, pattern, timeout=30):
        return True


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("these tests run against a broker that is already there")
'''


def version() -> str:
    return VERSION


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    if not task.concerns_named_tests:
        return None
    source = prepare(task.work)
    print(f"== {NAME} {VERSION}", flush=True)

    def once(task: Task, words: Sequence[str]) -> list[Outcome]:
        with task.kafka_broker(PROFILE) as bootstrap:
            address = bootstrap(1)
            assert address is not None
            return run(source, address, task.logs, words, task.report)

    # On a fresh server: a test may have left topics behind that it would trip over.
    outcomes = once(task, task.words)
    return with_second_try(outcomes, task.allowed, lambda ids: once(task.again, names_of(ids)))


def prepare(work: Path) -> Path:
    """Fetch and unpack; returns the source folder."""
    folder = f"kafka_python-{VERSION}"
    archive = fetch.sdist(work, f"kafka-python=={VERSION}", f"{folder}.tar.gz", SHA256)
    source = work / folder
    fetch.unpack(archive, source, f"{folder}/")
    (source / "test" / "__init__.py").touch()
    (source / "test" / "service.py").write_text(SERVICE)
    return source


def run(
    source: Path, bootstrap: str, logs: Path, wanted: Sequence[str], report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run the suite in one pytest; `wanted` are parts of test ids, none means all."""
    command = [sys.executable, "-m", "pytest", "-q", "test/integration"]
    command += ["--ignore", "test/integration/test_ssl_integration.py", "-p", "no:randomly"]
    command += [f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal"]
    if wanted:
        command += ["-k", " or ".join(wanted)]
    environment = {"KAFKA_VERSION": BROKER_VERSION, "KAFKA_ROOT": "/"}
    environment["KAFKA_URI"] = f"kafka://{bootstrap.split(',')[0]}"
    found = junit.run(
        "kafka-python's suite",
        command,
        source,
        logs / "output.txt",
        SUITE_TIMEOUT_S,
        environment=environment,
    )
    # The folders above a file say nothing: `file::test`.
    outcomes = [replace(each, test_id="::".join(each.test_id.split("::")[-2:])) for each in found]
    for outcome in outcomes:
        report(outcome)
    return outcomes
