"""A few kills of a table pipeline, in every test run; `python -m tests.spark.table_kills --rounds N` for more."""

import pytest

from tests.spark.table_kills import run

pytestmark = [pytest.mark.crash, pytest.mark.slow, pytest.mark.timeout(1_800)]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_every_record_is_in_the_table_once_whichever_process_is_killed() -> None:
    found = run(rounds=3, seed=8)
    assert (found["driver"], found["worker"], found["server"]) == (1, 1, 1)
    assert found["records"] > 100
    assert found["dead letters"] > 0


@pytest.mark.parametrize(
    ("form", "seed"), [("delta", 3), ("iceberg", 5), pytest.param("parquet", 4, marks=pytest.mark.soak)]
)
def test_the_same_without_spark(form: str, seed: int) -> None:
    found = run(rounds=3, seed=seed, form=form, plain=True)
    assert found["driver"] > 0
    assert found["server"] > 0
    assert found["dead letters"] > 0
