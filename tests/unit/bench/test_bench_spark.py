"""Spark's jobs are read back, held to what was written, and never outlive the bench."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from bench import spark_client, spark_measures, stats
from bench.process import RunFailed
from bench.servers import Kafka
from bench.spark_client import SparkJobs
from bench.spark_measures import SPARK_MEASURES
from bench.stats import Verdict


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    return Kafka(tmp_path / "kafka", tmp_path / "no-script")


def script(folder: Path, job: str) -> SparkJobs:
    """A peer's script whose jobs all do the same."""
    path = folder / "spark-kafka"
    path.write_text(f'#!/bin/sh\n[ "$1" = install ] && exit 0\n{job}\n')
    path.chmod(0o755)
    return SparkJobs(path)


def test_a_job_says_its_results_among_what_spark_says(tmp_path: Path, kafka: Kafka) -> None:
    jobs = script(tmp_path, 'echo 26/11/21 WARN noise; echo "RESULT {\\"what\\": \\"$5\\"}"; echo RESULT 7')
    assert jobs.run("read", kafka, "topic", 3) == [{"what": kafka.bootstrap}, 7]


def test_a_job_that_fails_or_says_nothing_is_a_failed_run(tmp_path: Path, kafka: Kafka) -> None:
    with pytest.raises(RunFailed, match="ended with 3: no such topic"):
        script(tmp_path, "echo no such topic; exit 3").run("read", kafka, "topic")
    with pytest.raises(RunFailed, match="Spark's read ended without a result: all is well"):
        script(tmp_path, "echo all is well").run("read", kafka, "topic")
    with pytest.raises(RunFailed, match="spark-kafka script is not here"):
        SparkJobs(None).run("read", kafka, "topic")


def test_what_a_job_started_ends_with_it(
    tmp_path: Path, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_client, "RUN_SECONDS_MAX", 0.5)
    written = tmp_path / "pid"
    jobs = script(tmp_path, f"sleep 100 & echo $! > {written}; wait")
    with pytest.raises(RunFailed, match="was not done within"):
        jobs.run("read", kafka, "topic")
    left = Path(f"/proc/{int(written.read_text())}/stat")
    deadline = time.monotonic() + 5
    while left.exists() and " Z " not in left.read_text() and time.monotonic() < deadline:
        os.sched_yield()
    assert not left.exists() or " Z " in left.read_text()


@pytest.mark.parametrize("found", [{"rows": 9, "bytes": 900}, {"rows": 10, "bytes": 999}, {"rows": 11}])
def test_records_that_are_missing_or_changed_are_a_failed_run(found: dict[str, Any]) -> None:
    spark_measures._check({"what": "noop"}, 10, 100)
    spark_measures._check({"what": "aggregate", "rows": 10, "bytes": 1000}, 10, 100)
    with pytest.raises(RunFailed, match="of 10 records of 100 B"):
        spark_measures._check({"what": "aggregate", **found}, 10, 100)


def test_a_micro_batch_is_held_to_a_limit_whatever_the_connector_takes() -> None:
    (measure,) = [measure for measure in SPARK_MEASURES if measure.name == "spark-trigger"]
    figure = measure.figures[0]
    assert stats.compare(figure, [0.06], [0.05]).verdict is Verdict.PASS
    assert stats.compare(figure, [0.08], [0.5]).verdict is Verdict.FAIL
