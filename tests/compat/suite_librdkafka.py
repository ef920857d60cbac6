"""librdkafka's own test programme, built from the sources inside an npm package, one process per test.

A failed test leaves threads behind and aborts the programme, so each test number runs alone.  The programme
writes a JSON report; a test that is not in it has crashed or run out of time.

Two modes.  Quick mode (`-Q`) shortens the tests and leaves whole ones out: many of them then pass against
a closed port, and are not counted here (`PASS_WITHOUT_BROKER`).  Full mode runs them whole; the ones in `FULL` are
those that quick mode would leave out or cut short of groups, static members, subscriptions, pausing, poll intervals and
transactions.  Some run in both modes (`IN_BOTH`): quick mode has them work otherwise.

Tests whose names end with `_mock` are left out: they talk to brokers inside of librdkafka and not to a server.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import fetch
from brokers import Bootstrap, Broker, kafka_tools, on_demand
from fetch import BrokerFailed
from librdkafka_places import (
    ANY,
    AUTHORIZER,
    NO_AUTO_CREATION,
    OIDC,
    SECURED,
    THREE_NODES,
    Place,
    Providers,
    places,
)
from outcomes import Outcome, Status, with_second_try
from task import Task

NAME = "librdkafka"
VERSION = "2.15.1"
NPM_VERSION = "1.10.1"
SHA256 = "ada7d703bb1d3237e2292bfabf438d663b6160c9f1ac2a2406b5dc4257c81b66"
BROKER_VERSION = "4.2.0"
QUICK_TIMEOUT_S = 300
FULL_TIMEOUT_S = 420
SUITE_TIMEOUT_S = 3600
LOOK_EVERY_S = 0.5  # at a test that runs
DETAIL_MAX = 240

FULL = (
    *("0018", "0019", "0022", "0026", "0031", "0034", "0045", "0050", "0055", "0061", "0082"),
    *("0089", "0102", "0103", "0122", "0126", "0127", "0129", "0132", "0135", "0137", "0142"),
    # Share groups (KIP-932).
    *("0170", "0172", "0173", "0175", "0176", "0177", "0178", "0179", "0180", "0181", "0184", "0185"),
)
IN_BOTH = frozenset({"0022", "0031", "0034", "0055", "0103", "0127", "0129", "0137", "0184"})
# In quick mode, of those that do not run in full.
PASS_WITHOUT_BROKER = frozenset({"0171", "0174"})
# Tests of groups that run again with `TEST_CONSUMER_GROUP_PROTOCOL=consumer` (KIP-848), those of `FULL` in full mode.
CONSUMER = (
    *("0018", "0019", "0022", "0026", "0029", "0030", "0031", "0033", "0034", "0040", "0042", "0045"),
    *("0049", "0050", "0051", "0056", "0069", "0089", "0091", "0102", "0112", "0113", "0118", "0122"),
    *("0130", "0137"),
)
# Where tests run that want more of a server than others, or less.
PLACES = {
    **dict.fromkeys(
        ("0098", "0101", "0103", "0107", "0111"), THREE_NODES
    ),  # topics with replication factor 3
    **dict.fromkeys(("0081", "0109", "0115", "0119"), AUTHORIZER),
    **dict.fromkeys(("0097", "0135", "0142"), SECURED),
    "0126": OIDC,
}
JAVA_TOOLS = frozenset({"0052", "0077", "0098", "0109", "0115", "0119"})  # run Kafka's shell scripts
# The longest first, so that the end of the run is not one test alone.
# Of half a minute and more.  0033 stays far from its run by the other protocol, which would see its topics.
LONGEST_FIRST = (
    *("0170", "0172", "0184", "0126", "0177", "0173", "0089", "0185", "0103", "0176", "0179"),
    *("0091", "0137", "0026", "0180", "0181", "0018", "0109", "0076", "0102", "0081", "0178", "0045"),
    *("0052", "0107", "0122", "0142", "0055", "0077", "0119", "0093", "0050", "0097"),
)


@dataclass(frozen=True)
class Job:
    """One run of the test programme: a test number and the ids it is to report."""

    number: str
    full: bool
    names: tuple[str, ...]
    protocol: str = "classic"  # of consumer groups
    scenario: str = ""  # what the cluster is to be, in the programme's word

    @property
    def ids(self) -> list[str]:
        prefix = "consumer:" if self.protocol == "consumer" else "full:" if self.full else ""
        return [f"{prefix}{name}" for name in self.names]

    @property
    def label(self) -> str:
        words = (self.protocol, "full" if self.full else "quick", self.number, self.scenario)
        return "-".join(filter(None, words))

    @property
    def place(self) -> str:
        """The name of where it is to run."""
        place = PLACES.get(self.number, ANY)
        if not self.scenario:
            return place
        return self.scenario if place == ANY else f"{place}-{self.scenario}"


def version() -> str:
    return VERSION


def execute(task: Task) -> list[Outcome] | None:
    """None if no test of this suite was asked for."""
    tests = prepare(task.work)
    jobs = catalogue(tests, everything_full=task.full)
    if task.wanted:
        jobs = [job for job in jobs if any(word in test_id for word in task.wanted for test_id in job.ids)]
    if not jobs:
        return None
    print(f"== {NAME} {VERSION}: {len(jobs)} runs, {task.jobs} at a time", flush=True)

    def once(task: Task, jobs: Sequence[Job], at_a_time: int) -> list[Outcome]:
        def start(place: Place) -> contextlib.AbstractContextManager[Broker] | None:
            return task.start_kafka(place.profile, place.nodes, f"server-{place.name}")

        with (
            tempfile.TemporaryDirectory(prefix="librdkafka-") as folder,
            Providers() as providers,
            on_demand(start) as bootstrap,
        ):
            known = places(Path(folder), providers)
            return run(tests, bootstrap, known, task.logs, jobs, at_a_time, task.report)

    def once_more(ids: list[str]) -> list[Outcome]:
        # On a fresh server: a test may have left topics behind that it would trip over.
        return once(task.again, [job for job in jobs if any(test_id in ids for test_id in job.ids)], 1)

    return with_second_try(once(task, jobs, task.jobs), task.allowed, once_more)


def prepare(work: Path) -> Path:
    """Fetch, unpack and build (some minutes, once); returns the folder of the test programme."""
    source = work / f"librdkafka-{VERSION}-with-curl-and-json"
    if not (source / ".built").exists():
        fetch.need_tools(
            {
                "gcc": "gcc",
                "g++": "g++",
                "make": "make",
                "/usr/include/openssl/ssl.h": "libssl-dev",
                "/usr/include/zlib.h": "zlib1g-dev",
                "curl-config": "libcurl4-openssl-dev",
                "/usr/include/rapidjson/rapidjson.h": "rapidjson-dev",
            }
        )
        archive = fetch.npm_package(
            work,
            f"@confluentinc/kafka-javascript@{NPM_VERSION}",
            f"confluentinc-kafka-javascript-{NPM_VERSION}.tgz",
            SHA256,
        )
        fetch.unpack(archive, source, "package/deps/librdkafka/")
        print("building librdkafka and its tests (a minute or two, once) ...", flush=True)
        jobs = f"-j{os.cpu_count() or 2}"
        for step in (
            "./configure --disable-gssapi --disable-debug-symbols",
            f"make {jobs} libs",
            # The library is what users have.  Its tests wait more than they compute.
            f"env CFLAGS=-O0 CXXFLAGS=-O0 make -C tests {jobs} build",
        ):
            fetch.quietly(step.split(), cwd=source, log=source / "build.log")
        (source / ".built").touch()
    return source / "tests"


def catalogue(tests: Path, *, everything_full: bool) -> list[Job]:
    """Every job of a whole run: what quick mode really tests, and the chosen tests (or all) in full."""
    table = (tests / "test.c").read_text().split("struct test tests[] = {", 1)[1].split("{NULL}};", 1)[0]
    found: dict[str, dict[str, tuple[str, ...]]] = {}  # number -> scenario -> names
    for entry in re.split(r"\b_TEST\(", table)[1:]:
        name, flags = (part.strip() for part in re.split(r",|\)", entry, maxsplit=2)[:2])
        left_out = re.search(r"TEST_F_(LOCAL|MANUAL|KNOWN_ISSUE)\b", flags) or name.endswith("_mock")
        if not left_out:
            scenario = NO_AUTO_CREATION if f'.scenario = "{NO_AUTO_CREATION}"' in entry else ""
            by_scenario = found.setdefault(name[:4], {})
            by_scenario[scenario] = (*by_scenario.get(scenario, ()), name)

    def jobs(numbers: Iterable[str], *, full: bool) -> list[Job]:
        return [
            Job(number, full, names, scenario=scenario)
            for number in numbers
            for scenario, names in found.get(number, {}).items()
        ]

    full = tuple(found) if everything_full else FULL
    quick = found.keys() - PASS_WITHOUT_BROKER - {one for one in full if one not in IN_BOTH}
    return [
        *jobs(full, full=True),
        *jobs((number for number in found if number in quick), full=False),
        # Where there is no auto-creation, no test passes by this protocol against Apache Kafka either.
        *(
            Job(number, number in FULL, found[number][""], "consumer")
            for number in CONSUMER
            if number in found
        ),
    ]


def longest_first(jobs: Iterable[Job]) -> list[Job]:
    """In the order in which they begin, whatever their mode; the order of those that are not long stays."""
    rank = {number: index for index, number in enumerate(LONGEST_FIRST)}
    return sorted(jobs, key=lambda job: rank.get(job.number, len(rank)))


def run(
    tests: Path,
    bootstrap: Bootstrap[Place],
    known: Mapping[str, Place],
    logs: Path,
    jobs: Iterable[Job],
    parallel: int,
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run `jobs`, `parallel` at a time.

    A test that fails may do so because its broker has: that is looked at first.  If it is so, all that runs is ended
    and nothing more is reported, as every further failure would be this one.

    Raises:
        BrokerFailed
    """
    deadline = time.monotonic() + SUITE_TIMEOUT_S
    kafka_path = kafka_tools(logs)
    over = threading.Event()

    def one(job: Job) -> list[Outcome]:
        if over.is_set():
            return []
        place = known[job.place]
        address = bootstrap(place)
        if address is None:
            outcomes = _skipped(job, "needs three nodes")
        elif job.number in JAVA_TOOLS and kafka_path is None:
            outcomes = _skipped(job, "needs Java and Kafka's tools (MAGNETAR_PEERS)")
        else:
            outcomes = _run_job(job, tests, place, place.address or address, logs, kafka_path, deadline, over)
        if over.is_set():
            return []
        if any(outcome.status is Status.FAILED for outcome in outcomes):
            try:
                bootstrap.check(place)
            except BrokerFailed:
                over.set()
                raise
        for outcome in outcomes:
            report(outcome)
        return outcomes

    with ThreadPoolExecutor(parallel) as pool:
        running = [pool.submit(one, job) for job in longest_first(jobs)]
    failures = [error for each in running if (error := each.exception()) is not None]
    if failures:
        raise failures[0]
    return [outcome for each in running for outcome in each.result()]


def _run_job(
    job: Job,
    tests: Path,
    place: Place,
    bootstrap: str,
    logs: Path,
    kafka_path: Path | None,
    deadline: float,
    over: threading.Event,
) -> list[Outcome]:
    output, results = logs / f"{job.label}.log", logs / f"{job.label}.json"
    conf = logs / f"{job.label}.conf"
    lines = {
        "metadata.broker.list": bootstrap,
        "test.topic.random": "true",
        "test.timeout.multiplier": "2" if job.full else "3",
        **place.lines,
    }
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    results.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "RDKAFKA_TEST_CONF": str(conf),
        "TEST_REPORT": str(results),
        "TEST_KAFKA_VERSION": BROKER_VERSION,
        "TEST_LEVEL": "1",
        "TESTS": job.number,
        "BROKERS": bootstrap,
        **place.environment,
    }
    if job.protocol != "classic":
        environment["TEST_CONSUMER_GROUP_PROTOCOL"] = job.protocol
    environment.pop("CI", None)  # it leaves tests out and changes limits where this is set
    if kafka_path is not None:
        environment["KAFKA_PATH"] = str(kafka_path)
    command = ["./test-runner", "-p1", "-L", *([] if job.full else ["-Q"])]
    limit_s = min(FULL_TIMEOUT_S if job.full else QUICK_TIMEOUT_S, deadline - time.monotonic())
    began = time.monotonic()
    if limit_s <= 0:
        how = "the suite's time was up before it started"
    else:
        how = _spawn(command, tests, environment, output, limit_s, over)
    seconds = time.monotonic() - began
    outcomes = _read_results(job, results, output, how, seconds)
    if all(outcome.status is not Status.FAILED for outcome in outcomes):
        for file in (output, conf, results):
            file.unlink(missing_ok=True)
    return outcomes


def _spawn(
    command: Sequence[str],
    cwd: Path,
    environment: dict[str, str],
    output: Path,
    limit_s: float,
    over: threading.Event,
) -> str:
    """Run in a process group of its own, so that what a test starts ends with it; returns how it ended.

    It is ended when its time is up, or all tests are `over`.
    """
    deadline = time.monotonic() + limit_s
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *command],  # a failed test aborts: no core files
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while (code := process.poll()) is None:
                if over.is_set():
                    return "was ended with the others"
                if time.monotonic() >= deadline:
                    return f"did not end within {limit_s:.0f} s"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_EVERY_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def _read_results(job: Job, results: Path, output: Path, how: str, seconds: float) -> list[Outcome]:
    states: dict[str, dict[str, object]] = {}
    if results.exists():
        try:
            states = json.loads(results.read_text(errors="replace"))["tests"]
        except (ValueError, KeyError):
            how = f"{how}, report unreadable"
    outcomes = []
    for test_id, name in zip(job.ids, job.names, strict=True):
        entry = states.get(name, {})
        duration = entry.get("duration")
        took = duration if isinstance(duration, float) else seconds
        match entry.get("state"):
            case "PASSED":
                outcomes.append(Outcome(test_id, Status.PASSED, took))
            case "SKIPPED":
                outcomes.append(Outcome(test_id, Status.SKIPPED, took, _why_skipped(output, name)))
            case _:
                outcomes.append(Outcome(test_id, Status.FAILED, took, f"{how}: {_why_failed(output, name)}"))
    return outcomes


def _why_skipped(output: Path, name: str) -> str:
    for line in _lines(output):
        if f"[{name} " in line and "SKIPPING TEST: " in line:
            return line.split("SKIPPING TEST: ", 1)[1][:DETAIL_MAX]
    return "it skips itself here"


def _why_failed(output: Path, name: str) -> str:
    """What the programme says after its `### Test "name" failed` line, else the last thing it says."""
    last, next_one = "no output", False
    for line in _lines(output):
        if next_one:
            return line[:DETAIL_MAX]
        next_one = line.startswith(f'### Test "{name}')
        last = line or last
    return last[:DETAIL_MAX]


def _lines(output: Path) -> Iterator[str]:
    """The lines of a log that may not exist, without colours and trailing space."""
    if output.exists():
        with output.open(errors="replace") as lines:
            for line in lines:
                yield re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()


def _skipped(job: Job, reason: str) -> list[Outcome]:
    return [Outcome(test_id, Status.SKIPPED, 0.0, reason) for test_id in job.ids]
