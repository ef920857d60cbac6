"""`spark.read.format("magnetar")`: rows, projection, filters, and errors as a user sees them."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.spark.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(400)]

Read = Callable[..., "DataFrame"]
BASE_MS = 1_767_225_600_000  # 2026-01-01


def _values(count: int, begin: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % number, b"v%d" % number) for number in range(begin, begin + count)]


def test_columns_of_the_kafka_source(read: Read, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    writers.kafka(
        name,
        [(b"k", b"v"), (None, None), (b"", b"")],
        timestamp_ms=BASE_MS,
        headers=[("h", b"1"), ("h", b"2")],
    )
    frame = read(name, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.orderBy("offset").collect()
    assert [(row.key, row.value) for row in rows] == [(b"k", b"v"), (None, None), (b"", b"")]
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(name, 0, 0)}
    assert [row.offset for row in rows] == [0, 1, 2]
    assert [row.timestamp.timestamp() for row in rows] == [(BASE_MS + number) / 1000 for number in range(3)]
    assert [tuple(pair) for pair in rows[0].headers] == [("h", b"1"), ("h", b"2")]


def test_columns_of_pulsar(read: Read, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    writers.pulsar_rows(
        name,
        [("k", b"v1"), (None, b"v2")],
        partition=0,
        properties={"colour": "red"},
        event_timestamp=BASE_MS,
        compression=pulsar.CompressionType.ZSTD,
    )
    rows = read(name, includePulsarColumns="true", includeHeaders="true").orderBy("offset").collect()
    assert [(row.key, row.value) for row in rows] == [(b"k", b"v1"), (None, b"v2")]
    first = rows[0]
    assert first["__messageProperties"] == {"colour": "red"}
    assert [tuple(pair) for pair in first.headers] == [("colour", b"red")]
    assert first["__eventTime"].timestamp() == BASE_MS / 1000
    assert first["timestamp"] == first["__eventTime"]
    assert first["__publishTime"] > first["__eventTime"]
    assert first["__producerName"]
    assert [row["__sequenceId"] for row in rows] == [0, 1]
    # Whether the client has made one entry of both is its own affair.
    ids = [tuple(map(int, row["__messageId"].split(":"))) for row in rows]
    assert ids == sorted(set(ids))
    assert (ids[0][2], ids[0][3]) == (0, 0)


def test_a_schema_is_a_projection_in_any_order(
    read: Read, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(3))
    frame = read(name, "offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, b"v0"), (1, b"v1"), (2, b"v2")]
    assert read(name, "topic string").distinct().collect()[0].topic == name
    assert read(name, "headers array<struct<key:string,value:binary>>, partition int").count() == 3


def test_both_protocols_files_and_tail_together(
    read: Read, writers: Writers, topic: Callable[[], str]
) -> None:
    from pyspark.sql import functions as F

    name = writers.create(topic(), 3)
    payload = b"x" * 100
    for partition in range(3):
        for compression in ("none", "zstd"):
            writers.kafka(name, [(b"k", payload)] * 12_000, partition=partition, compression=compression)
        writers.pulsar_rows(name, [("k", payload)] * 3_000, partition=partition)
    totals = (
        read(name)
        .groupBy("partition")
        .agg(
            F.count("*").alias("rows"),
            F.countDistinct("offset").alias("offsets"),
            F.max("offset").alias("last"),
            F.sum(F.length("value")).alias("bytes"),
            F.sum(F.crc32("value")).alias("sum"),
        )
        .orderBy("partition")
        .collect()
    )
    import zlib

    assert [tuple(row) for row in totals] == [
        (partition, 27_000, 27_000, 26_999, 2_700_000, 27_000 * zlib.crc32(payload)) for partition in range(3)
    ]


def test_filters_are_taken_over_exactly(read: Read, writers: Writers, topic: Callable[[], str]) -> None:
    from pyspark.sql import functions as F

    name = writers.create(topic(), 2)
    for partition in range(2):
        writers.kafka(name, _values(1_000), partition=partition, timestamp_ms=BASE_MS)
    columns = "partition int, offset bigint, timestamp timestamp, key binary"
    at = datetime.fromtimestamp((BASE_MS + 500) / 1000, UTC)
    conditions: list[tuple[Any, int, bool]] = [
        (F.col("partition") == 1, 1_000, True),
        (F.col("partition").isin(0, 1), 2_000, True),
        ((F.col("offset") >= 10) & (F.col("offset") < 20), 20, True),
        ((F.col("offset") == 3) & (F.col("partition") == 0), 1, True),
        (F.col("timestamp") >= F.lit(at), 1_000, True),
        (F.col("timestamp") < F.lit(at), 1_000, True),
        (F.col("timestamp") == F.lit(at), 2, True),
        (F.col("offset").isin(5, 900), 4, False),
        (F.col("key") == F.lit(b"k7"), 2, False),
        ((F.col("offset") < 3) | (F.col("offset") >= 998), 10, False),
        (~(F.col("offset") == 3), 1_998, False),
    ]
    for condition, count, pushed in conditions:
        filtered = read(name, columns, filterPushdown=True).where(condition)
        assert filtered.count() == count, condition
        plan = filtered._jdf.queryExecution().executedPlan().toString()
        assert ("Filter " in plan) is not pushed, plan


def test_a_frame_that_is_used_twice_is_filtered_each_time(
    read: Read, writers: Writers, topic: Callable[[], str]
) -> None:
    """Spark 4.3 plans a Python data source once: what one use's filters leave would be all that another one reads."""
    name = writers.create(topic())
    writers.kafka(name, _values(100))
    frame = read(name)
    assert [frame.where("offset < 10").count(), frame.count(), frame.where("offset >= 95").count()] == [
        10,
        100,
        5,
    ]
    assert frame.where("offset < 10").union(frame.where("offset >= 95")).count() == 15


def test_where_filters_are_switched_off_reading_still_works(
    spark: "SparkSession", read: Read, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(100))
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    assert before is not None
    spark.conf.set(setting, "false")
    try:
        assert read(name, filterPushdown=True).where("offset < 10 and partition = 0").count() == 10
    finally:
        spark.conf.set(setting, before)


def test_sql_tables_and_views(
    spark: "SparkSession", server: MagnetarProcess, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(5))
    options = f"OPTIONS (`admin.url` '{server.http_url}', subscribe '{name}')"
    spark.sql(f"CREATE TEMPORARY VIEW v_{name.replace('-', '_')} USING magnetar {options}")
    counted = spark.sql(
        f"SELECT count(*), max(offset) FROM v_{name.replace('-', '_')} WHERE offset > 1"
    ).collect()
    assert tuple(counted[0]) == (3, 4)


def test_load_takes_a_topic(
    spark: "SparkSession", server: MagnetarProcess, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(5))
    assert spark.read.format("magnetar").option("admin.url", server.http_url).load(name).count() == 5


def test_an_empty_topic_and_an_empty_range(read: Read, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic(), 2)
    assert read(name).count() == 0
    writers.kafka(name, _values(5))
    assert read(name).where("offset > 5 and offset < 3").count() == 0
    assert read(name).where("partition = 1").count() == 0


def test_descriptors_are_read_in_python_workers(
    read: Read, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic(), 2)
    for partition in range(2):
        writers.kafka(name, _values(20_000), partition=partition)
    frame = read(name, descriptors="true", minPartitions=3)
    assert frame.columns == ["topic", "partition", "from_offset", "to_offset", "bytes", "plan"]
    slices = frame.drop("plan").collect()
    assert sum(row.to_offset - row.from_offset for row in slices) == 40_000
    assert {row.topic for row in slices} == {name}

    def count(batches: Any) -> Any:
        import pyarrow as pa

        from magnetar.pipelines.connector.read.slices import Slice

        for batch in batches:
            for plan in batch.column("plan").to_pylist():
                for part in Slice.parse(plan).record_batches(["partition", "value"]):
                    yield pa.RecordBatch.from_pydict({"rows": [part.num_rows]})

    assert frame.mapInArrow(count, "rows bigint").groupBy().sum("rows").collect()[0][0] == 40_000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribe": "no-such-topic"}, "option subscribe: there is no topic no-such-topic"),
        ({"colour": "red"}, "option colour is not known"),
        ({"startingOffsets": "latest"}, "option startingOffsets: a batch that begins at latest"),
        (
            {"admin__url": "http://127.0.0.1:1", "kafkaConsumer__pollTimeoutMs": 1},
            "start it or correct admin.url",
        ),
    ],
)
def test_errors_name_the_option(
    options: dict[str, object], says: str, read: Read, writers: Writers, topic: Callable[[], str]
) -> None:
    from pyspark.errors import PySparkException

    name = writers.create(topic())
    with pytest.raises(PySparkException) as raised:
        read(name, **options).collect()
    assert says in str(raised.value)


def test_a_schema_that_does_not_fit_is_told(read: Read, writers: Writers, topic: Callable[[], str]) -> None:
    from pyspark.errors import PySparkException

    name = writers.create(topic())
    with pytest.raises(
        PySparkException, match="schema: column value is binary, not string; read it as that and cast"
    ):
        read(name, "value string").collect()
    with pytest.raises(
        PySparkException, match="schema: there is no column colour; the columns are key, value"
    ):
        read(name, "colour string").collect()
