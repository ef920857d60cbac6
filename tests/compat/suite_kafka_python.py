"""kafka-python's own integration tests, over the wire, out of its source archive.

They find a broker through `KAFKA_URI`; `test/service.py`, which the archive leaves out, normally starts
one, so a stand-in takes its place (`kafka-python/service.py`).  The tests of SASL and SSL start brokers of their own,
each by a file of settings that the suite fills in: there the stand-in starts a Magnetar by that file.
"""

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import fetch
import junit
from brokers import Profile, kafka_tools
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

STAND_INS = Path(__file__).resolve().parent / NAME
SECURED = ("test_sasl_integration.py", "test_ssl_integration.py")
# What the suite fills in for a broker of its own; it writes Kafka's own keys for SASL, SSL and rules.
PROPERTIES = """\
node.id={broker_id}
listeners={transport}://{host}:{port}
plain.sasl.jaas.config={jaas_config}
{sasl_config}
{ssl_config}
{acl_config}
num.partitions={partitions}
group.initial.rebalance.delay.ms=0
"""
COMMAND_CONFIG = """\
security.protocol={transport}
sasl.mechanism={sasl_mechanism}
sasl.jaas.config={jaas_config}
"""
# Kafka's storage tool has the first users of SCRAM; what it is told lies beside the settings.
STORAGE = """\
#!/bin/sh
for one; do [ "$before" = -c ] && file=$one; before=$one; done
printf '%s\\n' "$@" >"$file.format"
"""


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
            outcomes = run(source, address, task.logs, words, task.report)
        if task.broker == "magnetar" and not task.bootstrap:
            outcomes += run_secured(source, task.logs, words, task.report)
        return outcomes

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
    shutil.copyfile(STAND_INS / "service.py", source / "test" / "service.py")
    resources = source / "servers" / "resources" / "default"
    resources.mkdir(parents=True, exist_ok=True)
    (resources / "kafka.properties").write_text(PROPERTIES)
    (resources / "sasl_command.conf").write_text(COMMAND_CONFIG)
    for name in ("log4j.properties", "kafka_server_jaas.conf"):  # asked for, and not looked at
        (resources / name).write_text("# nothing\n")
    return source


def run(
    source: Path, bootstrap: str, logs: Path, wanted: Sequence[str], report: Callable[[Outcome], None]
) -> list[Outcome]:
    """The tests of one broker; `wanted` are parts of test ids, none means all."""
    left_out = [word for name in SECURED for word in ("--ignore", f"test/integration/{name}")]
    environment = {"KAFKA_ROOT": "/", "KAFKA_URI": f"kafka://{bootstrap.split(',')[0]}"}
    return _pytest(source, ["test/integration", *left_out], environment, logs / "output.txt", wanted, report)


def run_secured(
    source: Path, logs: Path, wanted: Sequence[str], report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Those that start brokers of their own."""
    tools = kafka_tools(logs)
    root = tools or logs / "kafka"
    (root / "bin").mkdir(parents=True, exist_ok=True)
    storage = root / "bin" / "kafka-storage.sh"
    storage.write_text(STORAGE)
    storage.chmod(0o755)
    tests = [f"test/integration/{name}" for name in SECURED]
    if tools is None:
        tests += ["--deselect", f"{tests[0]}::test_admin"]
    if shutil.which("keytool") is None:
        tests.remove(f"test/integration/{SECURED[1]}")
    environment = {"KAFKA_ROOT": str(root), "KAFKA_SERVER_LOG": str(logs / "secured-server.log")}
    return _pytest(source, tests, environment, logs / "secured.txt", wanted, report)


def _pytest(
    source: Path,
    tests: Sequence[str],
    environment: dict[str, str],
    output: Path,
    wanted: Sequence[str],
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    command = [sys.executable, "-m", "pytest", "-q", *tests, "-p", "no:randomly"]
    command += [f"--timeout={TEST_TIMEOUT_S}", "--timeout-method=signal"]
    if wanted:
        command += ["-k", " or ".join(wanted)]
    found = junit.run(
        "kafka-python's suite",
        command,
        source,
        output,
        SUITE_TIMEOUT_S,
        environment={"KAFKA_VERSION": BROKER_VERSION, **environment},
    )
    # The folders above a file say nothing: `file::test`.
    outcomes = [replace(each, test_id="::".join(each.test_id.split("::")[-2:])) for each in found]
    for outcome in outcomes:
        report(outcome)
    return outcomes
