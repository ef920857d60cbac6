"""Java's clients: scenarios of Apache Pulsar's, and the interop matrix with Kafka's and Pulsar's in it.

Maven resolves the clients that `java/pom.xml` names into its own repository, `javac` compiles the sources beside it.
`scenario::NAME` is a scenario of `Scenarios.java`; `interop::...` a test of `java/interop.py`, which wants both doors
and therefore runs against Magnetar only.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import brokers
import fetch
import junit
import scenarios
from outcomes import Outcome, with_second_try
from task import Task, names_of

NAME = "java"
SOURCES = Path(__file__).resolve().parent / "java"
REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ("java", "javac", "mvn")
SCENARIOS_TIMEOUT_S = 900
INTEROP_TIMEOUT_S = 900
TEST_TIMEOUT_S = 180

PROFILE = brokers.Profile(
    settings={},
    magnetar_only={
        "num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    },
)
Report = Callable[[Outcome], None]


def version() -> str:
    """Of both clients under test."""
    found = pinned(SOURCES)
    return f"Pulsar {found['pulsar-client']}, Kafka {found['kafka-clients']}"


def pinned(sources: Path) -> dict[str, str]:
    """The versions that `pom.xml` in this folder pins, by artifact."""
    pom = ElementTree.parse(sources / "pom.xml")
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    return {
        one.findtext("m:artifactId", "", space): one.findtext("m:version", "", space)
        for one in pom.iterfind(".//m:dependency", space)
    }


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    if not task.concerns_named_tests:
        return None
    class_path = prepare(task.work)
    task.refuse_bootstrap("this suite wants both doors of one broker")
    print(f"== {NAME}", flush=True)
    start = brokers.magnetar_with_pulsar if task.broker == "magnetar" else brokers.apache_pulsar

    def once(task: Task, words: Sequence[str]) -> list[Outcome]:
        with start(PROFILE, task.logs / "server.log") as addresses:
            outcomes = run_scenarios(class_path, addresses, task.logs, words, task.report)
            if addresses.kafka is not None:
                outcomes += run_interop(class_path, addresses, task.logs, words, task.report)
            return outcomes

    outcomes = once(task, task.words)
    return with_second_try(outcomes, task.allowed, lambda ids: once(task.again, names_of(ids)))


def prepare(work: Path, sources: Path = SOURCES) -> str:
    """Resolve the clients that `sources` pins, and compile what lies there; returns the class path."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise fetch.NotHere(f"{', '.join(missing)} not found: skipped")
    folder = work / sources.name
    classes, jars = folder / "classes", folder / "class-path.txt"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    # With what Maven has already got it needs no network; only the first run has nothing.
    resolve = ["mvn", "-q", "-B", "-f", str(sources / "pom.xml"), "dependency:build-classpath"]
    resolve += [f"-Dmdep.outputFile={jars}"]
    try:
        fetch.quietly([*resolve, "-o"])
    except fetch.SetupFailed:
        print("fetching Java's clients ...", flush=True)
        fetch.quietly(resolve)
    programs = sorted(str(path) for path in sources.glob("*.java"))
    fetch.quietly(["javac", "-cp", jars.read_text(), "-d", str(classes), *programs])
    return f"{classes}:{jars.read_text()}"


def run_scenarios(
    class_path: str, addresses: brokers.Addresses, logs: Path, words: Sequence[str], report: Report
) -> list[Outcome]:
    command = ["java", "-cp", class_path, "Scenarios", addresses.pulsar, addresses.http, *words]
    return scenarios.run(command, SOURCES, logs / "scenarios.txt", SCENARIOS_TIMEOUT_S, report)


def run_interop(
    class_path: str, addresses: brokers.Addresses, logs: Path, words: Sequence[str], report: Report
) -> list[Outcome]:
    command = [sys.executable, "-m", "pytest", "-q", "interop.py", "-c", os.devnull, f"--rootdir={SOURCES}"]
    command += ["-p", "no:randomly", f"--timeout={TEST_TIMEOUT_S}"]
    if words:
        command += ["-k", " or ".join(words)]
    assert addresses.kafka is not None
    environment = {
        "INTEROP_KAFKA": addresses.kafka,
        "INTEROP_PULSAR": addresses.pulsar,
        "INTEROP_HTTP": addresses.http,
        "INTEROP_CLASS_PATH": class_path,
        "INTEROP_LOG": str(logs / "bridge.log"),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    outcomes = junit.run(
        "the interop matrix",
        command,
        SOURCES,
        logs / "interop.txt",
        INTEROP_TIMEOUT_S,
        environment=environment,
    )
    for outcome in outcomes:
        report(outcome)
    return outcomes
