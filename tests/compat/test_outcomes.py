"""The judge that decides whether `make compat` is green."""

from pathlib import Path

import pytest
from outcomes import Outcome, Status, judge, read_allow_list, with_second_try

PASSED = Outcome("a", Status.PASSED, 1.0)
FAILED = Outcome("b", Status.FAILED, 1.0, "boom")
SKIPPED = Outcome("c", Status.SKIPPED, 0.0, "no Java")


def test_listed_failure_breaks_the_run() -> None:
    verdict = judge("s", [PASSED, FAILED], ["a", "b"], whole=True)
    assert verdict.failures == ["FAILED: b: boom"]
    assert verdict.closing_line == "s: 1 passed, 1 failed, 0 skipped"


def test_unlisted_failure_is_only_counted() -> None:
    verdict = judge("s", [PASSED, FAILED], ["a"], whole=True)
    assert verdict.failures == []
    assert verdict.failed == 1


def test_unlisted_pass_asks_to_be_added() -> None:
    assert judge("s", [PASSED], [], whole=True).notes == ["new pass: add it: a"]


def test_skip_never_breaks_the_run_but_says_why() -> None:
    verdict = judge("s", [SKIPPED], ["c"], whole=True)
    assert verdict.failures == []
    assert verdict.notes == ["listed but skipped: c: no Java"]


def test_listed_test_that_vanished_breaks_a_whole_run_only() -> None:
    assert judge("s", [PASSED], ["a", "gone"], whole=True).failures == [
        "MISSING: gone is listed and did not run"
    ]
    assert judge("s", [PASSED], ["a", "gone"], whole=False).failures == []


def test_allow_list_drops_comments_and_refuses_a_test_listed_twice(tmp_path: Path) -> None:
    path = tmp_path / "allow.txt"
    path.write_text("# why\n\na  # note\nb\n")
    assert read_allow_list(path) == ["a", "b"]
    path.write_text("a\nb\na\n")
    with pytest.raises(ValueError, match="lists a more than once"):
        read_allow_list(path)


def test_a_listed_test_that_failed_gets_one_second_try_and_the_first_is_told() -> None:
    first = [
        Outcome("flaky", Status.FAILED, 1.0, "too slow"),
        Outcome("broken", Status.FAILED, 1.0, "wrong"),
        Outcome("unlisted", Status.FAILED, 1.0, "not yet"),
        Outcome("fine", Status.PASSED, 1.0),
    ]
    asked: list[list[str]] = []

    def again(names: list[str]) -> list[Outcome]:
        asked.append(names)
        return [Outcome("flaky", Status.PASSED, 1.0), Outcome("broken", Status.FAILED, 1.0, "wrong again")]

    allowed = ["flaky", "broken", "fine"]
    verdict = judge("suite", with_second_try(first, allowed, again), allowed, whole=True)
    assert asked == [["flaky", "broken"]]
    assert verdict.failures == ["FAILED: broken: wrong again; failed at first (wrong)"]
    assert "passed at the second try: flaky: failed at first (too slow)" in verdict.notes
    assert (verdict.passed, verdict.failed) == (2, 2)


def test_nothing_runs_twice_when_nothing_listed_failed() -> None:
    outcomes = [Outcome("fine", Status.PASSED, 1.0), Outcome("unlisted", Status.FAILED, 1.0, "not yet")]
    assert with_second_try(outcomes, ["fine"], lambda names: pytest.fail(str(names))) == outcomes
