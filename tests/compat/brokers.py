"""The broker under a suite: a fresh Magnetar, a fresh Apache Kafka or Pulsar to compare with, or one that runs.

Each suite names the settings it needs in Kafka's own words (`Profile`), so that one list starts either.
Data is empty at every start: suites create thousands of topics and some look at all of them.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from fetch import BrokerFailed, SetupFailed, quietly

from magnetar.testing.server import ANSWER_TIMEOUT_S, MagnetarProcess, ServerFailed, answers, free_ports

PEER_START_TIMEOUT_S = 180
REPOSITORY = Path(__file__).resolve().parents[2]
Kind = TypeVar("Kind")  # of brokers, told apart by what one is asked for: so many nodes, for instance


@dataclass(frozen=True)
class Profile:
    """`settings` for both; `kafka_only` for what Magnetar needs no key for or does not have yet.

    `java_options` are for the Java that a real server runs in.  `kafka_port` is of a listener without TLS and SASL, at
    which a server whose `settings` have listeners is to be found.
    """

    settings: Mapping[str, str]
    kafka_only: Mapping[str, str] = field(default_factory=dict)
    magnetar_only: Mapping[str, str] = field(default_factory=dict)
    java_options: str = ""
    kafka_port: int = 0


@dataclass(frozen=True)
class Addresses:
    """Of a broker with a Pulsar door; `kafka` is None where it has no other."""

    pulsar: str
    http: str
    kafka: str | None


# What the suites take for granted and Pulsar's shipped configuration leaves out.  Without topic policies the
# broker needs no system topic, whose messages would be counted where nothing was sent.
PULSAR_SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "topicLevelPoliciesEnabled": "false",
    "journalSyncData": "false",
}

KAFKA_TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
}


@dataclass(frozen=True)
class Broker:
    """One that runs; `check` raises `BrokerFailed` if it has ended or does not answer any more."""

    address: str
    check: Callable[[], None]


class Bootstrap(Generic[Kind]):
    """Gives the bootstrap address of a broker of a kind, which is started at first use.  Threads may call it."""

    def __init__(
        self,
        start: Callable[[Kind], contextlib.AbstractContextManager[Broker] | None],
        stack: contextlib.ExitStack,
    ) -> None:
        self._start = start
        self._stack = stack
        self._lock = threading.Lock()
        self._known: dict[Kind, Broker | None] = {}

    def __call__(self, kind: Kind) -> str | None:
        """None where such a broker cannot be had."""
        with self._lock:
            if kind not in self._known:
                broker = self._start(kind)
                self._known[kind] = None if broker is None else self._stack.enter_context(broker)
            known = self._known[kind]
            return None if known is None else known.address

    def check(self, kind: Kind) -> None:
        """`BrokerFailed` if that broker, which was asked for before, has ended or does not answer."""
        with self._lock:  # one look at a time: the first one that finds it hung ends it
            known = self._known[kind]
            if known is not None:
                known.check()


@contextlib.contextmanager
def on_demand(
    start: Callable[[Kind], contextlib.AbstractContextManager[Broker] | None],
) -> Iterator[Bootstrap[Kind]]:
    """`start` returns None where a broker of a kind cannot be had."""
    with contextlib.ExitStack() as stack:
        yield Bootstrap(start, stack)


@contextlib.contextmanager
def running(address: str) -> Iterator[Broker]:
    """One that somebody else has started."""

    def check() -> None:
        for one in address.split(","):
            host, port = one.rsplit(":", 1)
            if not answers(host, int(port), ANSWER_TIMEOUT_S):
                raise BrokerFailed(f"the broker at {one} does not answer within {ANSWER_TIMEOUT_S:g} s")

    yield Broker(address, check)


@contextlib.contextmanager
def magnetar(
    profile: Profile, log: Path, nodes: int = 1, command: Sequence[str] | None = None
) -> Iterator[Broker]:
    """What the server printed is left in `log`; `command` runs something else in its place."""
    log.unlink(missing_ok=True)
    settings = {**profile.settings, **profile.magnetar_only}

    def check() -> None:
        try:
            server.check()
        except ServerFailed as failure:
            raise BrokerFailed(str(failure)) from None

    try:
        with MagnetarProcess(
            settings=settings,
            nodes=nodes,
            log_file=log,
            command=command,
            environment={"PYTHONFAULTHANDLER": "1"},  # one that hangs tells where: see `check`
        ) as server:
            if profile.kafka_port:
                server.ports = [profile.kafka_port + node for node in range(nodes)]
            yield Broker(server.bootstrap, check)
            check()
    except ServerFailed as failure:
        raise SetupFailed(str(failure)) from None


@contextlib.contextmanager
def magnetar_with_pulsar(
    profile: Profile, log: Path, ports: tuple[int, int] | None = None
) -> Iterator[Addresses]:
    """Both doors of one server; `ports` are Pulsar's and HTTP's where a suite has them built in."""
    log.unlink(missing_ok=True)
    settings = {**profile.settings, **profile.magnetar_only}
    arguments = [] if ports is None else ["--pulsar-port", str(ports[0]), "--http-port", str(ports[1])]
    try:
        with MagnetarProcess(settings=settings, arguments=arguments, log_file=log) as server:
            if ports is None:
                yield Addresses(server.pulsar_url, server.http_url, server.bootstrap)
            else:
                pulsar, http = ports
                yield Addresses(f"pulsar://127.0.0.1:{pulsar}", f"http://127.0.0.1:{http}", server.bootstrap)
    except ServerFailed as failure:
        raise SetupFailed(str(failure)) from None


@contextlib.contextmanager
def apache_pulsar(profile: Profile, log: Path, ports: tuple[int, int] | None = None) -> Iterator[Addresses]:
    """A standalone, started by the script in `peers_dir()`."""
    script = peer("pulsar")
    if script is None:
        raise SetupFailed(
            "no Apache Pulsar to compare with: set MAGNETAR_PEERS to the folder of the peer scripts"
        )
    pulsar, http = free_ports(2) if ports is None else ports
    pairs = [f"{key}={value}" for key, value in {**profile.settings, **PULSAR_SETTINGS}.items()]
    with _peer(script, [str(pulsar), str(http), *pairs], "Apache Pulsar", log):
        yield Addresses(f"pulsar://127.0.0.1:{pulsar}", f"http://127.0.0.1:{http}", None)


@contextlib.contextmanager
def apache_kafka(profile: Profile, log: Path) -> Iterator[Broker]:
    """One node, started by the script in `peers_dir()`."""
    script = peer_kafka()
    if script is None:
        raise SetupFailed(
            "no Apache Kafka to compare with: set MAGNETAR_PEERS to the folder of the peer scripts"
        )
    port = profile.kafka_port or free_ports(2)[0]
    pairs = [f"{key}={value}" for key, value in {**profile.settings, **profile.kafka_only}.items()]
    with (
        _peer(script, [str(port), *pairs], "Apache Kafka", log, profile.java_options),
        running(f"127.0.0.1:{port}") as broker,
    ):
        yield broker


@contextlib.contextmanager
def _peer(script: Path, arguments: list[str], what: str, log: Path, java_options: str = "") -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="peer-"))
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": java_options} if java_options else None
    try:
        subprocess.run(
            [script, "start", folder, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=PEER_START_TIMEOUT_S,
        )
        yield
    except subprocess.SubprocessError as error:
        raise SetupFailed(f"{what} did not start: {error}") from None
    finally:
        subprocess.run([script, "stop", folder], check=False, stdout=subprocess.DEVNULL)
        if (folder / "log").exists():
            shutil.copyfile(folder / "log", log)
        shutil.rmtree(folder, ignore_errors=True)


def peers_dir() -> Path:
    """Where the scripts that start other people's servers lie: `MAGNETAR_PEERS` says, if anything does."""
    given = os.environ.get("MAGNETAR_PEERS")
    return Path(given) if given else REPOSITORY.parent / "shared" / "peers"


def peer_kafka() -> Path | None:
    """The script that starts Apache Kafka and runs its Java tools; None where it or Java is missing."""
    return peer("kafka")


def peer(name: str) -> Path | None:
    script = peers_dir() / name
    return script if script.exists() and shutil.which("java") else None


def kafka_tools(logs: Path) -> Path | None:
    """A stand-in for a Kafka distribution in `logs`: the peer's jars in `libs`, and scripts in `bin` that run its tools
    or any class.

    None where those are not to be had.
    """
    kafka = peer_kafka()
    if kafka is None:
        return None
    quietly([str(kafka), "install"])  # else the first tool would, and print what that prints
    folder = logs / "kafka"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "libs").mkdir()
    for jar in _class_path(kafka):
        (folder / "libs" / jar.name).symlink_to(jar)
    scripts = {
        name: f'KAFKA_HEAP=128m exec {shlex.quote(str(kafka))} tool {java_class} "$@"'
        for name, java_class in KAFKA_TOOLS.items()
    }
    scripts["kafka-run-class.sh"] = f'exec java -Xmx128m -cp "$CLASSPATH:{folder.resolve()}/libs/*" "$@"'
    for name, command in scripts.items():
        script = folder / "bin" / name
        script.write_text(f"#!/bin/sh\n{command}\n")
        script.chmod(0o755)
    return folder


def _class_path(kafka: Path) -> list[Path]:
    """The jars that the peer's script gives a JVM, which alone says where they lie."""
    shown = subprocess.run(
        [str(kafka), "tool", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(word) for word in shown.stderr.split() if word.endswith(".jar")]
