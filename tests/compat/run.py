"""Run the outside test suites against Magnetar and compare with the allow-lists.  `make compat` is this.

    python tests/compat/run.py                        every suite, each on a fresh server with empty data
    python tests/compat/run.py kafka-python           one suite
    python tests/compat/run.py 0034 test_group        the tests whose id contains one of these
    python tests/compat/run.py --full 0113            librdkafka: any test in full mode
    python tests/compat/run.py --broker kafka         against Apache Kafka: what a correct broker scores
    python tests/compat/run.py --broker pulsar        against Apache Pulsar: the suites of Pulsar's clients
    python tests/compat/run.py --bootstrap HOST:PORT  against a broker that already runs

Whole suites against Magnetar write `docs/compatibility.md` anew (`scorecard.py`).  Sources, builds and logs lie in
`tests/compat/.work`.  Exit code 1 means that a listed test failed, a suite could not run, or the broker under one ended
or hung before it was over.
"""

import argparse
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            suite_kafka_python.NAME,
            suite_kafka_python.version,
            ("magnetar", "kafka"),
            suite_kafka_python.execute,
        ),
        Suite(
            suite_librdkafka.NAME, suite_librdkafka.version, ("magnetar", "kafka"), suite_librdkafka.execute
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


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    names = [name for name in options.names if name in SUITES]
    tests = [name for name in options.names if name not in SUITES]
    options.work.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []
    broken: list[str] = []
    skipped = 0
    for suite in names or SUITES:
        began = time.monotonic()
        if options.broker not in SUITES[suite].brokers:
            if names:
                print(f"{suite}: no test of it can run against {options.broker}", flush=True)
            continue
        try:
            verdict = _run_suite(SUITES[suite], tests, options)
        except fetch.NotHere as reason:
            skipped += 1
            print(f"{suite}: {reason}", flush=True)
            continue
        except fetch.BrokerFailed as failure:
            broken.append(f"THE BROKER FAILED: {suite} is not over: {failure}")
            print(f"  {broken[-1]}", flush=True)
            continue
        except fetch.SetupFailed as failure:
            broken.append(f"COULD NOT RUN: {suite}: {failure}")
            print(f"  {broken[-1]}", flush=True)
            continue
        if verdict is None:
            continue
        verdicts.append(verdict)
        # Against another broker the list says nothing about Magnetar: the score is all there is to see.
        for line in verdict.notes if options.broker == "magnetar" else ():
            print(f"  {line}")
        print(f"  {suite} took {time.monotonic() - began:.0f} s")
        print(verdict.closing_line, flush=True)
    if not verdicts and not broken and not skipped:
        print(f"no test is called {' or '.join(tests)}" if tests else "nothing ran")
        return 2
    # What broke the run comes last, where a reader of the end of a long output finds it.
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
    parser.add_argument("--jobs", type=int, default=6, help="librdkafka tests at a time (default 6)")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="sources, builds, logs")
    options = parser.parse_args(arguments)
    options.work = options.work.resolve()
    return options


def _run_suite(suite: Suite, wanted: Sequence[str], options: argparse.Namespace) -> Verdict | None:
    """None if no test of this suite was asked for."""
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
            report=_report,
        )
    )
    if not outcomes:
        return None
    if not wanted and not options.full and options.broker == "magnetar" and not options.bootstrap:
        known = scorecard.read_known(HERE / suite.name / "known.txt")
        scorecard.write(scorecard.score_of(suite.name, suite.version(), outcomes, known))
        scorecard.PAGE.write_text(scorecard.page(scorecard.read_all()))
    return judge(suite.name, outcomes, allowed, whole=not wanted)


def _report(outcome: Outcome) -> None:
    detail = f"  {outcome.detail}" if outcome.status is not Status.PASSED else ""
    with _PRINT:
        print(f"  {outcome.status.value:7} {outcome.test_id} ({outcome.seconds:.1f} s){detail}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
