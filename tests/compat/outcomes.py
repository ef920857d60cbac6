"""What became of each test, and whether that is good enough.

An allow-list (`<suite>/allow.txt`) names the tests that must pass: one id a line, `#` starts a comment.
It only ever grows.  A listed test that fails, or that the suite no longer has, fails the run; a test
that passes without being listed is reported so that it gets listed; a skip carries its reason and never fails a run.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path


class Status(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    test_id: str
    status: Status
    seconds: float
    detail: str = ""  # one line: why it failed or was skipped


@dataclass(frozen=True)
class Verdict:
    """`failures` break the run; `notes` are for the reader."""

    suite: str
    passed: int
    failed: int
    skipped: int
    failures: list[str]
    notes: list[str]

    @property
    def closing_line(self) -> str:
        return f"{self.suite}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_allow_list(path: Path) -> list[str]:
    """The ids in `path`, in order; `ValueError` if one is listed twice."""
    ids = [line.split("#", 1)[0].strip() for line in path.read_text().splitlines()]
    ids = [test_id for test_id in ids if test_id]
    if twice := sorted({test_id for test_id in ids if ids.count(test_id) > 1}):
        raise ValueError(f"{path.name} lists {', '.join(twice)} more than once")
    return ids


def with_second_try(
    outcomes: Iterable[Outcome], allowed: Collection[str], run_again: Callable[[list[str]], list[Outcome]]
) -> list[Outcome]:
    """Run listed tests that failed once more, alone; what the second try says holds, and the first is reported.

    The suites have races of their own, which a busy machine brings out.  Some measure times; librdkafka's 0033 deletes
    topics while its consumer still asks for them by name, which creates them again, and its next run finds them.
    """
    by_id = {outcome.test_id: outcome for outcome in outcomes}
    failed = [o.test_id for o in by_id.values() if o.status is Status.FAILED and o.test_id in allowed]
    if failed:
        for again in run_again(failed):
            if again.test_id in failed:
                detail = f"failed at first ({by_id[again.test_id].detail})"
                told = detail if again.status is Status.PASSED else f"{again.detail}; {detail}"
                by_id[again.test_id] = replace(again, detail=told)
    return list(by_id.values())


def judge(suite: str, outcomes: Iterable[Outcome], allowed: Collection[str], *, whole: bool) -> Verdict:
    """Compare what happened with what must pass.

    `whole` says that every test of the suite was asked for, so that a listed one without an outcome is
    missing rather than filtered out.
    """
    by_id = {outcome.test_id: outcome for outcome in outcomes}
    count = {status: sum(o.status is status for o in by_id.values()) for status in Status}
    failures: list[str] = []
    notes: list[str] = []
    for outcome in by_id.values():
        listed = outcome.test_id in allowed
        if outcome.status is Status.FAILED and listed:
            failures.append(f"FAILED: {outcome.test_id}: {outcome.detail}")
        elif outcome.status is Status.PASSED and listed and outcome.detail:
            notes.append(f"passed at the second try: {outcome.test_id}: {outcome.detail}")
        elif outcome.status is Status.PASSED and not listed:
            notes.append(f"new pass: add it: {outcome.test_id}")
        elif outcome.status is Status.SKIPPED and listed:
            notes.append(f"listed but skipped: {outcome.test_id}: {outcome.detail}")
    if whole:
        failures += [
            f"MISSING: {test_id} is listed and did not run" for test_id in allowed if test_id not in by_id
        ]
    return Verdict(suite, count[Status.PASSED], count[Status.FAILED], count[Status.SKIPPED], failures, notes)
