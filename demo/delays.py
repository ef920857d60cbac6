"""Hourly delays per airport: the Spark part of `python -m demo.spark`.

    flights (topic) --readStream, window, watermark--> delays (topic) --pipeline of kind `table`--> a Delta table

An hour of an airport is one row, written once it is over: when the stream has seen a flight `LATENESS` later.  The
year's last hours are over when `clock`, a topic with nothing but times, says that it is past.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.pipelines.kinds.kind import Context, Query, Spec
from magnetar.pipelines.kinds.registry import find_kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FLIGHTS, CLOCK, DELAYS = "flights", "clock", "delays"
LATENESS = "90 days"  # partitions are read side by side: the flights of one may be weeks ahead of another's
END_OF_TIME = {"year": 2014, "month": 12, "day": 31, "hour": 0}
FLIGHTS_PER_BATCH = 60_000
FIELDS = "year int, month int, day int, hour int, origin string, row int, dep_delay int"
SCHEMAS: Mapping[str, list[tuple[str, Any]]] = {
    FLIGHTS: [
        *((name, "int") for name in ("row", "year", "month", "day")),
        *((name, "int") for name in ("dep_time", "sched_dep_time", "dep_delay")),
        *((name, "int") for name in ("arr_time", "sched_arr_time", "arr_delay")),
        ("carrier", "string"),
        ("flight", "int"),
        ("tailnum", "string"),
        ("origin", "string"),
        ("dest", "string"),
        *((name, "int") for name in ("air_time", "distance", "hour", "minute")),
        ("time_hour", "string"),
    ],
    DELAYS: [
        ("airport", "string"),
        ("hour", {"type": "long", "logicalType": "timestamp-millis"}),
        ("flights", "long"),
        ("departed", "long"),
        ("delay", "long"),
    ],
}


def schema_of(topic: str) -> str:
    """The definition of a JSON schema, in Avro's words as Pulsar has it; every field may be missing."""
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in SCHEMAS[topic]]
    return json.dumps({"type": "record", "name": topic.capitalize(), "fields": fields})


def hourly(rows: "DataFrame") -> "DataFrame":
    """Rows of the topics as keys and values of `delays`."""
    from pyspark.sql import functions as F

    flights = rows.select(F.from_json(F.col("value").cast("string"), FIELDS).alias("flight")).select(
        "flight.*"
    )
    at = F.make_timestamp("year", "month", "day", "hour", F.lit(0), F.lit(0))
    hours = flights.withColumn("at", at).withWatermark("at", LATENESS).groupBy("at", "origin")
    sums = hours.agg(
        F.count("row").alias("flights"),
        F.count("dep_delay").alias("departed"),
        F.sum("dep_delay").alias("delay"),
    ).where(
        "flights > 0"
    )  # of the clock there are none; said of a count, so that its rows still move the watermark
    value = F.struct(
        F.col("origin").alias("airport"), F.unix_millis("at").alias("hour"), "flights", "departed", "delay"
    )
    return sums.select(
        F.col("origin").cast("binary").alias("key"), F.to_json(value).cast("binary").alias("value")
    )


def aggregate(
    spark: "SparkSession", context: Context, checkpoint: Path, on_progress: Callable[[int], None]
) -> int:
    """Bring `delays` up to what is in `flights` now; how many flights were read.  Goes on where it was left."""
    options = context.bootstrap_options
    rows = (
        spark.readStream.format("magnetar")
        .options(**options)
        .option("admin.url", context.admin_url)
        .option("subscribe", f"{FLIGHTS},{CLOCK}")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", FLIGHTS_PER_BATCH)
        .load()
    )
    writer = hourly(rows).writeStream.format("magnetar").options(**options).option("topic", DELAYS)
    query = (
        writer.queryName("hourly delays")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    batches: dict[int, int] = {}
    while not query.awaitTermination(1):
        _note(query, batches)
        on_progress(sum(batches.values()))
    _note(query, batches)
    return sum(batches.values())


def _note(query: "StreamingQuery", batches: dict[int, int]) -> None:
    """Spark forgets old batches' reports, so they are kept as they come."""
    batches.update({progress["batchId"]: progress["numInputRows"] for progress in query.recentProgress})


def start_table(spark: "SparkSession", context: Context, folder: Path) -> Query:
    """The pipeline that appends `delays` to a Delta table in `folder`, as a worker would run it."""
    kind = find_kind("table")
    config = kind.validate({"topics": DELAYS, "path": str(folder), "format": "delta", "trigger": "1 second"})
    spec = Spec("delays-table", "delays-table", kind.name, config, "delays-table")
    return kind.start(spark, spec, str(context.folder / "checkpoint-table"), context)
