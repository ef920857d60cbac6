"""`spark.readStream.format("magnetar")`: every record once, over restarts, limits and new partitions."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

RunStream = Callable[..., list[Any]]


def _values(count: int, begin: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % number, b"%d" % number) for number in range(begin, begin + count)]


def _numbers(rows: list[Any]) -> list[int]:
    return [int(row.value) for row in rows]


def test_a_restart_goes_on_where_it_stood(
    run_stream: RunStream, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(500))
    writers.pulsar_rows(name, [(None, value) for _, value in _values(500, 500)], partition=0)
    assert _numbers(run_stream(name)) == list(range(1_000))
    assert run_stream(name) == []
    writers.kafka(name, _values(200, 1_000), compression="lz4")
    assert _numbers(run_stream(name)) == list(range(1_000, 1_200))


def test_limits_cut_a_run_into_batches(
    spark: "SparkSession",
    server: MagnetarProcess,
    writers: Writers,
    topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    name = writers.create(topic(), 2)
    for partition in range(2):
        writers.kafka(name, _values(1_000), partition=partition)
    query = (
        spark.readStream.format("magnetar")
        .option("admin.url", server.http_url)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 600)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    batches = [each for each in query.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in batches] == [600, 600, 600, 200]
    source = batches[0]["sources"][0]
    assert json.loads(source["endOffset"]) == {name: {"0": 300, "1": 300}}
    assert json.loads(source["latestOffset"]) == {name: {"0": 1_000, "1": 1_000}}


def test_records_are_seen_as_they_come_and_so_are_partitions(
    spark: "SparkSession",
    server: MagnetarProcess,
    writers: Writers,
    topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    name = writers.create(topic())
    seen: list[int] = []

    def keep(batch: "DataFrame", batch_id: int) -> None:
        seen.extend(int(row.value) for row in batch.select("value").collect())

    query = (
        spark.readStream.format("magnetar")
        .option("admin.url", server.http_url)
        .option("subscribePattern", f"{name}.*")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        writers.kafka(name, _values(100))
        _until(lambda: len(seen) == 100, query)
        writers.grow(name, 2)
        writers.kafka(name, _values(100, 100), partition=1)
        writers.create(f"{name}-other")
        writers.kafka(f"{name}-other", _values(100, 200))
        _until(lambda: len(seen) == 300, query)
    finally:
        query.stop()
    assert sorted(seen) == list(range(300))


def _until(reached: Callable[[], bool], query: Any, within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not reached():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def test_a_subscription_is_moved_to_the_end_of_a_run(
    run_stream: RunStream, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(100))
    subscription = f"{name}-spark"

    assert len(run_stream(name, predefinedSubscription=subscription)) == 100
    assert writers.position(subscription) == 100
    writers.kafka(name, _values(10, 100))
    # The checkpoint is lost; the subscription is not.
    assert _numbers(run_stream(name, checkpoint="new", predefinedSubscription=subscription)) == list(
        range(100, 110)
    )
    assert writers.position(subscription) == 110


def test_what_was_deleted_before_it_was_read_ends_the_query(
    run_stream: RunStream, writers: Writers, topic: Callable[[], str]
) -> None:
    from pyspark.errors import StreamingQueryException

    name = writers.create(topic())
    writers.kafka(name, _values(100))
    assert len(run_stream(name)) == 100
    writers.kafka(name, _values(100, 100))
    writers.delete_before(name, 0, 150)
    with pytest.raises(StreamingQueryException, match="offsets 100 to 149 have been deleted"):
        run_stream(name)
    assert _numbers(run_stream(name, failOnDataLoss="false")) == list(range(150, 200))
