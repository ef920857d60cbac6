"""Which modules are not imported because `-m` excludes all that is in them."""

from pathlib import Path

import pytest

from tests.excluded import WRITTEN_OUT, Excluded, excluded, markers, wanted

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("", set()),
        ("not spark", {"spark"}),
        ("not spark and not soak", {"spark", "soak"}),
        ("slow and not spark", {"spark"}),
        ("spark", set()),
        ("not spark or slow", set()),
        ("not (spark and slow)", set()),
    ],
)
def test_a_marker_is_excluded_if_no_test_with_it_can_run(expression: str, found: set[str]) -> None:
    assert excluded(expression) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("", set()),
        ("spark", {"spark"}),
        ("not soak and spark", {"spark"}),
        ("slow", set()),
        ("not spark", set()),
        ("spark or slow", set()),
        ("not (spark and slow)", set()),
    ],
)
def test_a_marker_is_wanted_if_no_test_without_it_can_run(expression: str, found: set[str]) -> None:
    assert wanted(expression) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pytest\npytestmark = pytest.mark.spark\n", {"spark"}),
        ("pytestmark = [pytest.mark.spark, pytest.mark.timeout(9)]\nX = [\n]\n", {"spark", "timeout"}),
        ("pytestmark = [\n    pytest.mark.slow,\n    pytest.mark.spark,\n]\n", {"slow", "spark"}),
        ("@pytest.mark.spark\ndef test_one(): ...\n", set()),
        ("class TestOne:\n    pytestmark = pytest.mark.spark\n", set()),
    ],
)
def test_a_marker_of_single_tests_is_not_the_modules(source: str, found: set[str]) -> None:
    assert markers(source) == found


def test_modules_that_start_spark_are_not_imported_where_no_test_of_theirs_runs() -> None:
    without = Excluded("not spark and not soak")
    assert without.pytest_ignore_collect(TESTS / "spark" / "test_sql.py")
    assert without.pytest_ignore_collect(TESTS / "spark" / "test_cluster.py")
    for other in ("spark", "spark/test_slices.py", "spark/test_table_kills.py", "testing/test_excluded.py"):
        assert without.pytest_ignore_collect(TESTS / other) is None
    assert Excluded("spark").pytest_ignore_collect(TESTS / "spark" / "test_sql.py") is None


def test_only_modules_with_tests_that_start_spark_are_imported_where_these_alone_run() -> None:
    alone = Excluded("spark")
    assert alone.pytest_ignore_collect(TESTS / "clients" / "test_groups.py")
    for other in ("spark/test_table_kills.py", "soak/test_flights_runs.py", "clients", "conftest.py"):
        assert alone.pytest_ignore_collect(TESTS / other) is None
    assert Excluded("slow").pytest_ignore_collect(TESTS / "spark" / "test_sql.py") is None


def test_no_test_gets_a_marker_from_elsewhere_that_is_looked_for_in_its_modules_text() -> None:
    ours = [path.relative_to(TESTS) for path in TESTS.rglob("*.py")]
    helpers = [path for path in ours if ".work" not in path.parts and not path.match("test_*.py")]
    found = {
        marker: [path for path in helpers if f"mark.{marker}" in (TESTS / path).read_text()]
        for marker in WRITTEN_OUT
    }
    # The text of that one says how modules are marked.
    assert found == {"spark": [Path("spark/conftest.py")], "peers": []}
