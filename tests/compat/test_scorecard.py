"""The scorecard says what the last whole runs said, and gives a reason for everything that did not pass."""

from pathlib import Path

import pytest
import run
import scorecard
from outcomes import Outcome, Status, read_allow_list
from scorecard import NO_REASON, PAGE, Score

OUTCOMES = [
    Outcome("b", Status.FAILED, 1.0, "boom"),
    Outcome("c", Status.SKIPPED, 0.0, "no Java"),
    Outcome("d", Status.FAILED, 1.0, "boom"),
    Outcome("a", Status.PASSED, 1.0),
    Outcome("e", Status.SKIPPED, 0.0, "obscure"),
]


def test_failures_have_the_reason_that_was_written_down_and_skips_their_own(tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("# why\n\nb | ACLs are not built yet\ne | it wants TLS\n")
    score = scorecard.score_of("s", "1.2", OUTCOMES, scorecard.read_known(known))
    assert score == Score(
        "s", "1.2", 1, {"b": "ACLs are not built yet", "d": NO_REASON}, {"c": "no Java", "e": "it wants TLS"}
    )
    (tmp_path / "s").mkdir()
    scorecard.write(score, tmp_path)
    assert scorecard.read_all(tmp_path) == [score]
    page = scorecard.page([score])
    assert "| s | 1.2 | 1 | 2 | 2 |" in page
    assert "| `b` | failed | ACLs are not built yet |" in page
    assert "| `c` | skipped | no Java |" in page


@pytest.mark.parametrize("line", ["b", "b |", "| reason", "b | one\nb | two"])
def test_a_line_without_one_test_and_one_reason_is_refused(tmp_path: Path, line: str) -> None:
    known = tmp_path / "known.txt"
    known.write_text(line)
    with pytest.raises(ValueError, match="not one test and one reason"):
        scorecard.read_known(known)


def test_the_page_is_what_the_scores_say() -> None:
    assert PAGE.read_text() == scorecard.page(scorecard.read_all())


def test_every_suite_that_runs_by_itself_has_a_score_with_reasons() -> None:
    scores = {score.suite: score for score in scorecard.read_all()}
    assert scores.keys() | {"pulsar-client-python"} == run.SUITES.keys()  # that one wants a checkout
    for name, score in scores.items():
        assert score.version == run.SUITES[name].version()
        assert NO_REASON not in score.failed.values(), score.failed
        assert all(score.skipped.values()), score.skipped
        listed = read_allow_list(scorecard.HERE / name / "allow.txt")
        assert not score.failed.keys() & listed
        assert score.passed + len(score.failed) + len(score.skipped) >= len(listed)
