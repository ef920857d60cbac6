"""A few kills of a table pipeline, in every test run; `python -m tests.spark.table_kills --rounds N` for more."""

import pytest

from tests.spark.table_kills import run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.xdist_group("spark"),
]


def test_every_record_is_in_the_table_once_whoever_is_killed() -> None:
    found = run(rounds=3, seed=8)
    assert found["driver"] == 1
    assert found["worker"] == 1
    assert found["server"] == 1
    assert found["records"] > 100
    assert found["dead letters"] > 0
