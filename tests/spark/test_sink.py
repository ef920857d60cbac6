"""Writing through Spark: what a user types, and what a Kafka client finds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.pipelines.sink_kit import read_committed, values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

MakeTopic = Callable[[], str]


def write(frame: "DataFrame", server: MagnetarProcess, **options: str) -> None:
    writer = frame.write.format("magnetar").option("kafka.bootstrap.servers", server.bootstrap).mode("append")
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def test_every_column_of_a_batch_job(
    spark: "SparkSession", server: MagnetarProcess, topic: MakeTopic
) -> None:
    name = topic()
    frame = spark.sql(
        "select 'k' as key, encode('v', 'utf-8') as value, 7 as other, 0 as partition,"
        f" array(named_struct('key', 'h', 'value', encode('1', 'utf-8'))) as headers, '{name}' as topic"
    )
    write(frame, server)
    (found,) = read_committed(server, name, 1)
    assert (found.key(), found.value(), found.headers()) == (b"k", b"v", [("h", b"1")])


def test_many_rows_from_many_tasks(spark: "SparkSession", server: MagnetarProcess, topic: MakeTopic) -> None:
    name = topic()
    frame = spark.range(0, 100_000, 1, 5).selectExpr(
        "cast(id % 97 as string) as key", "cast(id as string) as value"
    )
    write(frame, server, topic=name, kafka__compression__type="lz4")
    found = read_committed(server, name, 1)
    assert sorted(int(message.value() or b"") for message in found) == list(range(100_000))


def test_a_batch_job_with_transactions_has_no_row_of_an_attempt_that_failed(
    spark: "SparkSession", server: MagnetarProcess, topic: MakeTopic
) -> None:
    name = topic()

    def fail_once(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 1:
            raise RuntimeError("the first attempt of this task fails when all its rows are written")

    frame = spark.range(0, 40_000, 1, 2).selectExpr("lpad(cast(id as string), 100, '0') as value")
    write(frame.mapInArrow(fail_once, "value string"), server, topic=name, exactlyOnce="true")
    found = read_committed(server, name, 1)
    assert sorted(int(message.value() or b"") for message in found) == list(range(40_000))
    last = max(message.offset() or 0 for message in found)
    assert last > 41_000  # the rows of the attempt that failed are there, and no reader sees them


@pytest.mark.parametrize(
    ("query", "options", "says"),
    [
        ("select 1 as value", {"topic": "t"}, "column value must be string or binary, it is int"),
        ("select 'v' as other", {"topic": "t"}, "there is no column value"),
        ("select 'v' as value", {}, "set option topic"),
        (
            "select 'v' as value",
            {"topic": "t", "topik": "t"},
            "option topik is not known; did you mean topic?",
        ),
        ("select 'v' as value, 9 as partition", {"topic": "one-partition"}, "names partition 9"),
    ],
)
def test_what_is_wrong_is_said_in_sparks_error(
    spark: "SparkSession", server: MagnetarProcess, query: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match="magnetar") as failure:
        write(spark.sql(query), server, **options)
    assert says in str(failure.value)


def test_overwriting_is_refused(spark: "SparkSession", server: MagnetarProcess) -> None:
    frame = spark.sql("select 'v' as value")
    writer = (
        frame.write.format("magnetar")
        .option("kafka.bootstrap.servers", server.bootstrap)
        .option("topic", "t")
    )
    with pytest.raises(Exception, match="mode overwrite: a topic only grows"):
        writer.mode("overwrite").save()


def test_a_stream_is_written_once_and_goes_on_where_it_was(
    spark: "SparkSession", server: MagnetarProcess, topic: MakeTopic, tmp_path: Path
) -> None:
    source, sink = topic(), topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "log_level": 2})

    def run() -> None:
        query = (
            spark.readStream.format("magnetar")
            .option("admin.url", server.http_url)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "40")
            .load()
            .select("key", "value")
            .writeStream.format("magnetar")
            .option("kafka.bootstrap.servers", server.bootstrap)
            .option("topic", sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(100)
            assert query.exception() is None
        finally:
            query.stop()

    for begin in (0, 100):
        for number in range(begin, begin + 100):
            producer.produce(source, f"{number:03}")
        assert producer.flush(30) == 0
        run()
        assert values_of(read_committed(server, sink, 1)) == [f"{number:03}" for number in range(begin + 100)]
