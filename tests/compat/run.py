"""Run the outside test suites against Magnetar and compare with the allow-lists.  `make compat` is this.

    python tests/compat/run.py                        every suite, each on a fresh server with empty data
    python tests/compat/run.py kafka-python           one suite
    python tests/compat/run.py 0034 test_group        the tests whose id contains one of these
    python tests/compat/run.py --full 0113            librdkafka: any test in full mode
    python tests/compat/run.py --broker kafka         against Apache Kafka: what a correct broker scores
    python tests/compat/run.py --broker pulsar        against Apache Pulsar: the suites of Pulsar's clients
    python tests/compat/run.py --bootstrap HOST:PORT  against a broker that already runs

Whole suites against Magnetar write `docs/compatibility.md` anew (`scorecard.py`).  Sources, builds and logs lie in
`tests/compat/.work`.  Two suites run at a time, each in a process of its own: they wait more than they compute.
Exit code 1 means that a listed test failed, a suite could not run, or the broker under one ended or hung before it was
over.
"""

import argparse
import gc
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import fetch
import scorecard
import suite_java
import suite_kafka_python
import suite_librdkafka
import suite_logins
import suite_pulsar_admin
import suite_pulsar_client
import suite_pulsar_flex
import suite_pulsar_go
import suite_pulsar_v5
from outcomes import Outcome, Status, Verdict, judge, read_allow_list
from task import Task

HERE = Path(__file__).resolve().parent
_PRINT = threading.Lock()


@dataclass(frozen=True)
class Suite:
    """`execute` returns None if no test of the suite was asked for; `version` is that of what it tests with."""

    name: str
    version: Callable[[], str]
    brokers: tuple[str, ...]
    execute: Callable[[Task], list[Outcome] | None]


@dataclass(frozen=True)
class Broken:
    """The suite could not run to its end; `sentence` says why."""

    sentence: str


@dataclass(frozen=True)
class Skipped:
    """This machine lacks what the suite needs."""


# The longest first: the others run beside it.
SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            suite_librdkafka.NAME, suite_librdkafka.version, ("magnetar", "kafka"), suite_librdkafka.execute
        ),
        Suite(
            suite_kafka_python.NAME,
            suite_kafka_python.version,
            ("magnetar", "kafka"),
            suite_kafka_python.execute,
        ),
        Suite(
            suite_pulsar_client.NAME,
            suite_pulsar_client.version,
            ("magnetar", "pulsar"),
            suite_pulsar_client.execute,
        ),
        Suite(
            suite_logins.NAME,
            suite_logins.version,
            ("magnetar", "kafka", "pulsar"),
            suite_logins.execute,
        ),
        Suite(suite_java.NAME, suite_java.version, ("magnetar", "pulsar"), suite_java.execute),
        Suite(
            suite_pulsar_flex.NAME,
            suite_pulsar_flex.version,
            ("magnetar", "pulsar"),
            suite_pulsar_flex.execute,
        ),
        Suite(suite_pulsar_admin.NAME, suite_pulsar_admin.version, ("magnetar",), suite_pulsar_admin.execute),
        Suite(suite_pulsar_go.NAME, suite_pulsar_go.version, ("magnetar", "pulsar"), suite_pulsar_go.execute),
        Suite(suite_pulsar_v5.NAME, suite_pulsar_v5.version, ("magnetar",), suite_pulsar_v5.execute),
    )
}


def _run_side_by_side(
    at_once: int, suites: Sequence[str], tests: Sequence[str], options: argparse.Namespace
) -> "list[Verdict | Broken | Skipped | None]":
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("fork")) as pool:
        running = [pool.submit(_run_suite, name, tests, options) for name in suites]
        try:
            return [one.result() for one in running]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    names = [name for name in options.names if name in SUITES]
    tests = [name for name in options.names if name not in SUITES]
    options.work.mkdir(parents=True, exist_ok=True)
    if options.broker == "magnetar":
        # As for `make test`: JVMs of clients and tools live for seconds.
        os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    suites = names or [name for name, suite in SUITES.items() if options.broker in suite.brokers]
    if others := [name for name in suites if options.broker not in SUITES[name].brokers]:
        print(f"no test of {', '.join(others)} can run against {options.broker}", flush=True)
        return 2
    at_once = max(1, min(options.suites, len(suites)))
    # A forked process must not collect what is garbage here: a client in it would wait for threads that are not there.
    gc.freeze()
    try:
        results = _run_side_by_side(at_once, suites, tests, options)
    finally:
        gc.unfreeze()
    if all(result is None for result in results):
        print(f"no test is called {' or '.join(tests)}" if tests else "nothing ran")
        return 2
    verdicts = [result for result in results if isinstance(result, Verdict)]
    if options.broker == "magnetar":
        scorecard.PAGE.write_text(scorecard.page(scorecard.read_all()))
    # What broke the run comes last, where a reader of the end of a long output finds it.
    broken = [result.sentence for result in results if isinstance(result, Broken)]
    broken += [line for verdict in verdicts for line in verdict.failures if options.broker == "magnetar"]
    for line in broken:
        print(line)
    if broken:
        print(f"logs: {options.work / 'logs'}")
    passed, failed = sum(v.passed for v in verdicts), sum(v.failed for v in verdicts)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if broken else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="tests/compat/run.py"
    )
    parser.add_argument(
        "names", nargs="*", metavar="SUITE|TEST", help=f"{', '.join(SUITES)}, or part of a test id"
    )
    parser.add_argument(
        "--broker", choices=("magnetar", "kafka", "pulsar"), default="magnetar", help="what to start"
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this broker and start none")
    parser.add_argument(
        "--full", action="store_true", help="librdkafka: every test in full mode (an hour or more)"
    )
    parser.add_argument("--suites", type=int, default=2, help="suites at a time (default 2)")
    parser.add_argument("--jobs", type=int, default=9, help="librdkafka tests at a time (default 9)")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="sources, builds, logs")
    options = parser.parse_args(arguments)
    options.work = options.work.resolve()
    return options


def _run_suite(
    name: str, wanted: Sequence[str], options: argparse.Namespace
) -> "Verdict | Broken | Skipped | None":
    """None if no test of this suite was asked for."""
    began = time.monotonic()
    try:
        verdict = _judge_suite(SUITES[name], wanted, options)
    except fetch.NotHere as reason:
        print(f"{name}: {reason}", flush=True)
        return Skipped()
    except fetch.BrokerFailed as failure:
        return _broken(f"THE BROKER FAILED: {name} is not over: {failure}")
    except fetch.SetupFailed as failure:
        return _broken(f"COULD NOT RUN: {name}: {failure}")
    if verdict is not None:
        # Against another broker the list says nothing about Magnetar: the score is all there is to see.
        notes = verdict.notes if options.broker == "magnetar" else []
        took = f"{name} took {time.monotonic() - began:.0f} s"
        print("\n".join([*(f"  {line}" for line in (*notes, took)), verdict.closing_line]), flush=True)
    return verdict


def _broken(sentence: str) -> Broken:
    print(f"  {sentence}", flush=True)
    return Broken(sentence)


def _judge_suite(suite: Suite, wanted: Sequence[str], options: argparse.Namespace) -> Verdict | None:
    logs = options.work / "logs" / suite.name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    allowed = read_allow_list(HERE / suite.name / "allow.txt")
    outcomes = suite.execute(
        Task(
            work=options.work,
            logs=logs,
            wanted=wanted,
            allowed=allowed,
            broker=options.broker,
            bootstrap=options.bootstrap,
            full=options.full,
            jobs=options.jobs,
            report=partial(_report, suite.name),
        )
    )
    if not outcomes:
        return None
    if not wanted and not options.full and options.broker == "magnetar" and not options.bootstrap:
        known = scorecard.read_known(HERE / suite.name / "known.txt")
        scorecard.write(scorecard.score_of(suite.name, suite.version(), outcomes, known))
    return judge(suite.name, outcomes, allowed, whole=not wanted)


def _report(suite: str, outcome: Outcome) -> None:
    detail = f"  {outcome.detail}" if outcome.status is not Status.PASSED else ""
    with _PRINT:
        print(
            f"  {outcome.status.value:7} {suite} {outcome.test_id} ({outcome.seconds:.1f} s){detail}",
            flush=True,
        )


if __name__ == "__main__":
    raise SystemExit(main())
