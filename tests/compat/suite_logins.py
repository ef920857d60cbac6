"""Clients that other people wrote log in by each mechanism that they support, with right and with wrong credentials.

One server, configured by Kafka's and Pulsar's own key names (`logins/world.py`), and a program for each language with
as many clients as it has: each says what its clients saw, `SEEN client::mechanism::case seconds what`.  What they are
to see is in `logins/expected.txt`, and `docs/reference/logins.md` is made of that (`tools/login_reference.py`).

`--broker kafka` and `--broker pulsar` run the same clients against Apache's servers; where those are seen to do
something else, the table says that, too.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import brokers
import fetch
from logins import table
from logins.world import AUDIENCE, World
from outcomes import Outcome, Status, with_second_try
from task import Task

from magnetar.testing.identity_provider import IdentityProvider

NAME = "logins"
HERE = Path(__file__).resolve().parent / NAME
PROGRAM_TIMEOUT_S = 300
DETAIL_MAX = 200
PYTHON = ("confluent-kafka", "kafka-python", "aiokafka", "pulsar-client")
# What Pulsar's own launcher opens for its Java.
OPENED = ("java.base/sun.net", "java.base/java.lang", "java.base/java.nio", "java.base/jdk.internal.misc")
HOME_OF_PEERS = Path(
    os.environ.get("PEERS_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar-peers"
)

Report = Callable[[Outcome], None]


@dataclass(frozen=True)
class Program:
    """`command` prepares it and says how it is called; it raises `NotHere` where that cannot be."""

    name: str
    clients: tuple[str, ...]
    doors: frozenset[str]
    command: Callable[[Task], list[str]]


def version() -> str:
    """Of the clients for Python; those of the others are the peers' and the modules' of `go.mod`."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in PYTHON)


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    if not task.concerns_named_tests:
        return None
    task.refuse_bootstrap("this suite starts a server with settings of its own")
    print(f"== {NAME}", flush=True)
    outcomes = once(task, task.words)
    return with_second_try(outcomes, task.allowed, lambda ids: once(task.again, ids))


def once(task: Task, words: Sequence[str]) -> list[Outcome]:
    """Logins whose ids have one of `words`, or all of them."""
    expected = {
        test_id: what
        for test_id, what in table.expected(task.broker).items()
        if not words or any(word in test_id for word in words)
    }
    doors = _doors(task)
    commands: list[tuple[Program, list[str]]] = []
    outcomes: list[Outcome] = []
    for program in PROGRAMS:
        mine = [test_id for test_id in expected if test_id.split("::")[0] in program.clients]
        if program.doors & doors and (mine or not words):
            try:
                commands.append((program, program.command(task)))
            except fetch.NotHere as reason:
                outcomes += [Outcome(test_id, Status.SKIPPED, 0.0, str(reason)) for test_id in mine]
    with _servers(task) as (logins, environment), ThreadPoolExecutor(len(PROGRAMS)) as pool:
        runs = [
            pool.submit(
                _run,
                command,
                logins,
                words,
                environment,
                task.logs / f"{program.name}.txt",
                expected,
                task.report,
            )
            for program, command in commands
        ]
        for run in runs:
            outcomes += run.result()
    seen = {one.test_id for one in outcomes}
    missing = [test_id for test_id in expected if test_id not in seen]
    return outcomes + [Outcome(test_id, Status.FAILED, 0.0, "its program did not say") for test_id in missing]


def _doors(task: Task) -> set[str]:
    return {"kafka", "pulsar"} if task.broker == "magnetar" else {task.broker}


@contextlib.contextmanager
def _servers(task: Task) -> Iterator[tuple[Path, dict[str, str]]]:
    """The server and the identity provider; yields the file of logins, and what Java's clients need to be told."""
    log = task.logs / "server.log"
    folder = Path(tempfile.mkdtemp(prefix="logins-"))
    try:
        with IdentityProvider(AUDIENCE) as provider, contextlib.ExitStack() as stack:
            world = World(folder, provider)
            if task.broker == "kafka":
                profile = brokers.Profile(
                    world.kafka_settings,
                    kafka_only=world.kafka_only,
                    java_options=world.java_options,
                    kafka_port=world.sasl_ssl,
                )
                stack.enter_context(brokers.apache_kafka(profile, log))
                world.prepare_kafka()
            elif task.broker == "pulsar":
                profile = brokers.Profile(world.pulsar_settings | world.pulsar_only)
                world.prepare_pulsar(stack.enter_context(brokers.apache_pulsar(profile, log)).http)
            else:
                profile = brokers.Profile(world.kafka_settings | world.pulsar_settings)
                addresses = stack.enter_context(brokers.magnetar_with_pulsar(profile, log))
                world.prepare_kafka()
                world.prepare_pulsar(addresses.http)
            yield world.write(_doors(task)), {"JAVA_TOOL_OPTIONS": world.java_options}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(
    command: Sequence[str],
    logins: Path,
    words: Sequence[str],
    environment: dict[str, str],
    log: Path,
    expected: dict[str, str],
    report: Report,
) -> list[Outcome]:
    """What a program says, as outcomes; what it writes to standard error is left in `log`."""
    with log.open("wb") as errors:
        try:
            done = subprocess.run(
                [*command, str(logins), *words],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=PROGRAM_TIMEOUT_S,
                check=False,
            ).stdout
        except subprocess.TimeoutExpired as late:
            done = late.stdout or b""
    found = filter(None, (outcome_of(line, expected) for line in done.decode(errors="replace").splitlines()))
    outcomes = list(found)
    for outcome in outcomes:
        report(outcome)
    return outcomes


def outcome_of(line: str, expected: dict[str, str]) -> Outcome | None:
    """None for a line of any other form."""
    words = line.split(" ", 3)
    if words[0] != "SEEN" or len(words) != 4:
        return None
    _, test_id, seconds, what = words
    wanted = expected.get(test_id, table.LET_IN if test_id.endswith("::right") else "a refusal")
    if what == wanted:
        return Outcome(test_id, Status.PASSED, float(seconds))
    return Outcome(test_id, Status.FAILED, float(seconds), f"saw {what!r}, expected {wanted!r}"[:DETAIL_MAX])


# --- the programs ---


def _python(_: Task) -> list[str]:
    return [sys.executable, str(HERE / "python_clients.py")]


def _jars(peer: str, folder: str) -> Path:
    """Those of a distribution that the peer scripts fetch."""
    script = brokers.peer(peer)
    if script is None:
        raise fetch.NotHere("needs Java and the scripts that fetch Apache's servers (MAGNETAR_PEERS)")
    fetch.quietly([str(script), "install"])
    return max(HOME_OF_PEERS.glob(f"{folder}/lib"), key=lambda found: _version(found.parent.name))


def _version(folder: str) -> list[int]:
    """For the newest of several that were fetched."""
    return [int(number) for number in re.findall(r"\d+", folder)]


def _java(source: str, jars: Path, *options: str) -> list[str]:
    return [
        "java",
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dlog4j2.level=OFF",
        *options,
        "-cp",
        f"{jars}/*",
        str(HERE / source),
    ]


def _kafka_java(_: Task) -> list[str]:
    return _java("KafkaLogins.java", _jars("kafka", "kafka-*"))


def _pulsar_java(_: Task) -> list[str]:
    opened = [word for name in OPENED for word in ("--add-opens", f"{name}=ALL-UNNAMED")]
    return _java("PulsarLogins.java", _jars("pulsar", "apache-pulsar-*"), *opened)


def _go(task: Task) -> list[str]:
    if shutil.which("go") is None:
        raise fetch.NotHere("go not found: skipped")
    program = task.work / NAME / "go-clients"
    program.parent.mkdir(parents=True, exist_ok=True)
    fetch.quietly(["go", "build", "-o", str(program), "."], cwd=HERE / "go")
    return [str(program)]


def _spark(_: Task) -> list[str]:
    """By the Spark that the connector is for, which is a gigabyte: only where the peer script has fetched it before."""
    script = brokers.peer("spark-kafka")
    if script is None or not any(HOME_OF_PEERS.glob("spark-kafka-*/.done")):
        raise fetch.NotHere("needs Spark's Kafka connector (`spark-kafka install` of the peer scripts)")
    return [str(script), "python", str(HERE / "spark_kafka.py")]


PROGRAMS = (
    Program("python", PYTHON, frozenset({"kafka", "pulsar"}), _python),
    Program("kafka-java", ("kafka-clients", "kafka-tools"), frozenset({"kafka"}), _kafka_java),
    Program("pulsar-java", ("pulsar-client-java", "pulsar-admin"), frozenset({"pulsar"}), _pulsar_java),
    Program("go", ("franz-go", "pulsar-client-go", "pulsaradmin-go"), frozenset({"kafka", "pulsar"}), _go),
    Program("spark", ("spark-kafka",), frozenset({"kafka"}), _spark),
)
