"""Run the outside test suites against Magnetar and compare with the allow-lists.  `make compat` is this.

    python tests/compat/run.py                        every suite, each on a fresh server with empty data
    python tests/compat/run.py kafka-python           one suite
    python tests/compat/run.py 0034 test_group        the tests whose id contains one of these
    python tests/compat/run.py --full 0113            librdkafka: any test in full mode
    python tests/compat/run.py --broker kafka         against Apache Kafka: what a correct broker scores
    python tests/compat/run.py --bootstrap HOST:PORT  against a broker that already runs

Sources, builds and logs lie in `tests/compat/.work`.  Exit code 1 means that a listed test failed or a
suite could not run.
"""

import argparse
import contextlib
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import brokers
import fetch
import suite_kafka_python
import suite_librdkafka
from outcomes import Outcome, Status, Verdict, judge, read_allow_list, with_second_try

HERE = Path(__file__).resolve().parent
SUITES = (suite_kafka_python.NAME, suite_librdkafka.NAME)
_PRINT = threading.Lock()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    names = [name for name in options.names if name in SUITES]
    tests = [name for name in options.names if name not in SUITES]
    suites = names or SUITES
    options.work.mkdir(parents=True, exist_ok=True)
    verdicts: list[Verdict] = []
    broken: list[str] = []
    for suite in suites:
        began = time.monotonic()
        try:
            verdict = _run_suite(suite, tests, options)
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
    if not verdicts and not broken:
        print(f"no test is called {' or '.join(tests)}")
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
    parser.add_argument("--broker", choices=("magnetar", "kafka"), default="magnetar", help="what to start")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="use this broker and start none")
    parser.add_argument(
        "--full", action="store_true", help="librdkafka: every test in full mode (an hour or more)"
    )
    parser.add_argument("--jobs", type=int, default=3, help="librdkafka tests at a time (default 3)")
    parser.add_argument("--work", type=Path, default=HERE / ".work", help="sources, builds, logs")
    options = parser.parse_args(arguments)
    options.work = options.work.resolve()
    return options


def _run_suite(suite: str, wanted: Sequence[str], options: argparse.Namespace) -> Verdict | None:
    """None if no test of this suite was asked for."""
    logs = options.work / "logs" / suite
    again = logs / "again"
    shutil.rmtree(logs, ignore_errors=True)
    again.mkdir(parents=True)
    allowed = read_allow_list(HERE / suite / "allow.txt")
    if suite == suite_kafka_python.NAME:
        source = suite_kafka_python.prepare(options.work)
        words = [word for word in wanted if not word.split(":")[-1][:4].isdigit()]
        if wanted and not words:
            return None
        print(f"== {suite} {suite_kafka_python.VERSION}", flush=True)
        with _broker(suite_kafka_python.PROFILE, logs, options) as bootstrap:
            address = bootstrap(1)
            assert address is not None
            outcomes = suite_kafka_python.run(source, address, logs, words, _report)

        def once_more(names: list[str]) -> list[Outcome]:
            words = [name.rsplit("::", 1)[-1].split("[")[0] for name in names]
            with _broker(suite_kafka_python.PROFILE, again, options) as bootstrap:
                address = bootstrap(1)
                assert address is not None
                return suite_kafka_python.run(source, address, again, words, _report)

    else:
        tests = suite_librdkafka.prepare(options.work)
        jobs = suite_librdkafka.catalogue(tests, everything_full=options.full)
        if wanted:
            jobs = [job for job in jobs if any(word in test_id for word in wanted for test_id in job.ids)]
        if not jobs:
            return None
        print(
            f"== {suite} {suite_librdkafka.VERSION}: {len(jobs)} runs, {options.jobs} at a time", flush=True
        )
        with _broker(suite_librdkafka.PROFILE, logs, options) as bootstrap:
            outcomes = suite_librdkafka.run(tests, bootstrap, logs, jobs, options.jobs, _report)

        def once_more(names: list[str]) -> list[Outcome]:
            chosen = [job for job in jobs if any(test_id in names for test_id in job.ids)]
            with _broker(suite_librdkafka.PROFILE, again, options) as bootstrap:
                return suite_librdkafka.run(tests, bootstrap, again, chosen, 1, _report)

    # On a fresh server: a test may have left topics behind that it would trip over.
    outcomes = with_second_try(outcomes, allowed, once_more)
    return judge(suite, outcomes, allowed, whole=not wanted) if outcomes else None


def _broker(
    profile: brokers.Profile, logs: Path, options: argparse.Namespace
) -> contextlib.AbstractContextManager[brokers.Bootstrap]:
    def start(nodes: int) -> contextlib.AbstractContextManager[str] | None:
        if options.bootstrap:
            return contextlib.nullcontext(options.bootstrap)
        log = logs / f"server-{nodes}.log"
        if options.broker == "kafka":
            return brokers.apache_kafka(profile, log) if nodes == 1 else None
        return brokers.magnetar(profile, log, nodes)

    return brokers.on_demand(start)


def _report(outcome: Outcome) -> None:
    detail = f"  {outcome.detail}" if outcome.status is not Status.PASSED else ""
    with _PRINT:
        print(f"  {outcome.status.value:7} {outcome.test_id} ({outcome.seconds:.1f} s){detail}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
