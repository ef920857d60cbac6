"""Flights from a topic: a table of all, a view of delays, and the late ones in a topic of their own."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
AT = {
    "admin.url": os.environ.get("MAGNETAR_URL", "http://127.0.0.1:8080"),
    "kafka.bootstrap.servers": os.environ.get("MAGNETAR_BOOTSTRAP", "127.0.0.1:9092"),
}
TOPIC = os.environ.get("MAGNETAR_TOPIC", "flights")
FIELDS = "origin string, dest string, delay int"


@dp.table
def flights() -> DataFrame:
    """Every record of the topic, once: a run goes on where the one before it ended."""
    records = (
        spark.readStream.format("magnetar")
        .options(**AT)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    value = f.from_json(f.col("value").cast("string"), FIELDS).alias("flight")
    return records.select(value, "partition", "offset").select("flight.*", "partition", "offset")


@dp.materialized_view
def delays() -> DataFrame:
    """Made anew by each run."""
    by_origin = spark.read.table("flights").groupBy("origin")
    return by_origin.agg(f.count("*").alias("flights"), f.avg("delay").alias("delay"))


dp.create_sink("late", "magnetar", {**AT, "topic": f"{TOPIC}-late"})


@dp.append_flow(target="late")
def late_flights() -> DataFrame:
    flight = f.to_json(f.struct("origin", "dest", "delay"))
    late = spark.readStream.table("flights").where("delay > 60")
    return late.select(f.encode("origin", "utf-8").alias("key"), f.encode(flight, "utf-8").alias("value"))
