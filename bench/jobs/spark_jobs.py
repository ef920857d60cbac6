"""What Spark is asked to do with a topic, under a Spark that has either our source or Kafka's connector.

    python spark_jobs.py read       SOURCE BOOTSTRAP HTTP TOPIC RUNS
    python spark_jobs.py descriptor SOURCE BOOTSTRAP HTTP TOPIC RUNS
    python spark_jobs.py stream     SOURCE BOOTSTRAP HTTP TOPIC RUNS RECORDS_PER_TRIGGER
    python spark_jobs.py trigger    SOURCE BOOTSTRAP HTTP TOPIC SECONDS
    python spark_jobs.py write      SOURCE BOOTSTRAP HTTP TOPIC RUNS SIZE COUNT

SOURCE is `magnetar` or `kafka`; HTTP is the server's REST address (Kafka has none).  Both have two cores and the same
heap.  Each result is one line, `RESULT` and a JSON object; times are seconds.  Nothing of this repository is imported
where SOURCE is kafka: that is another Python's Spark.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

CORES = 2
MEMORY = "3g"
WRITE_PARTITIONS = 2
WARM_UP_S = 10.0


def say(**found: object) -> None:
    print("RESULT", json.dumps(found), flush=True)


class Job:
    """A session, and the topic as its source and sink see it."""

    def __init__(self, source: str, bootstrap: str, http: str, topic: str) -> None:
        self.source = source
        self.topic = topic
        self.options = {"kafka.bootstrap.servers": bootstrap}
        if source == "magnetar":
            from magnetar.pipelines.spark import session

            self.options["admin.url"] = http
            self.spark = session.start("bench", master=f"local[{CORES}]", memory=MEMORY)
        else:
            from pyspark.sql import SparkSession

            self.spark = (
                SparkSession.builder.master(f"local[{CORES}]")
                .config("spark.jars", os.environ["SPARK_KAFKA_JARS"])
                .config("spark.driver.memory", MEMORY)
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.sql.shuffle.partitions", "4")
                .getOrCreate()
            )
        self.spark.sparkContext.setLogLevel("ERROR")

    def frame(self, **more: str) -> Any:
        reader = self.spark.read.format(self.source).options(**self.options, **more)
        return reader.option("subscribe", self.topic).option("startingOffsets", "earliest").load()

    def streaming(self, starting: str, **more: str) -> Any:
        reader = self.spark.readStream.format(self.source).options(**self.options, **more)
        return reader.option("subscribe", self.topic).option("startingOffsets", starting).load()


def read(job: Job, runs: str) -> None:
    """Every record with all columns into nothing, and into three aggregates."""
    from pyspark.sql import functions as F

    def into_nothing() -> dict[str, int]:
        job.frame().write.format("noop").mode("overwrite").save()
        return {}

    def aggregates() -> dict[str, int]:
        wanted = (F.count("*").alias("rows"), F.sum(F.length("value")).alias("bytes"), F.max("offset"))
        row = job.frame().select(*wanted).collect()[0]
        return {"rows": row["rows"], "bytes": row["bytes"]}

    _repeat({"noop": into_nothing, "aggregate": aggregates}, int(runs))


def descriptor(job: Job, runs: str) -> None:
    """Every record decoded and encoded again where its file lies; only counts pass through Spark."""

    def again() -> dict[str, int]:
        frame = job.frame(descriptors="true").mapInArrow(_encode_again, "rows bigint, bytes bigint")
        counts = frame.collect()  # one row for each slice: as little of Spark as in `noop`
        return {"rows": sum(each["rows"] for each in counts), "bytes": sum(each["bytes"] for each in counts)}

    _repeat({"descriptor": again}, int(runs))


def _encode_again(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    from magnetar.pipelines.connector.read.slices import Slice
    from magnetar.wire.columns import Wanted, encode

    wanted = Wanted(key=True, value=True, offset=False, timestamp=True, timestamp_type=False, headers=True)
    for batch in batches:
        for plan in batch.column("plan").to_pylist():
            rows = size = 0
            for columns in Slice.parse(plan).columns(wanted):
                rows += columns.count
                size += len(columns.value.data) if columns.value is not None else 0
                encode(columns)
            yield pa.RecordBatch.from_pydict({"rows": [rows], "bytes": [size]})


def stream(job: Job, runs: str, records_per_trigger: str) -> None:
    """The whole topic in micro-batches of a given size, until it is drained."""

    def drain() -> dict[str, int]:
        with tempfile.TemporaryDirectory() as folder:
            frame = job.streaming("earliest", maxOffsetsPerTrigger=records_per_trigger)
            writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            return {"rows": sum(each["numInputRows"] for each in query.recentProgress)}

    _repeat({"stream": drain}, int(runs))


def trigger(job: Job, seconds: str) -> None:
    """How long a micro-batch takes while a few records a second come in: one batch after the other."""
    with tempfile.TemporaryDirectory() as folder:
        frame = job.streaming("latest")
        query = frame.writeStream.format("noop").option("checkpointLocation", folder).start()
        batches: dict[int, float] = {}
        warm_from = time.monotonic() + WARM_UP_S
        until = warm_from + float(seconds)
        while time.monotonic() < until and query.isActive:
            time.sleep(0.2)
            for progress in query.recentProgress:
                if time.monotonic() > warm_from and progress["numInputRows"]:
                    batches[progress["batchId"]] = progress["durationMs"]["triggerExecution"] / 1000
        query.stop()
        if query.exception() is not None:
            raise SystemExit(f"the query ended: {query.exception()}")
    for number, duration in sorted(batches.items()):
        say(what="trigger", batch=number, seconds=duration)


def write(job: Job, runs: str, size: str, count: str) -> None:
    """Rows that Spark makes, with a key, into the topic."""
    from pyspark.sql import functions as F

    def produce() -> dict[str, int]:
        rows = job.spark.range(0, int(count), 1, WRITE_PARTITIONS)
        text = F.rpad(F.col("id").cast("string"), int(size), "x")
        frame = rows.select(
            F.col("id").cast("string").cast("binary").alias("key"), text.cast("binary").alias("value")
        )
        writer = frame.write.format(job.source).options(**job.options).option("topic", job.topic)
        writer.mode("append").save()
        return {"rows": int(count), "bytes": int(count) * int(size)}

    _repeat({"write": produce}, int(runs))


def _repeat(jobs: dict[str, Callable[[], dict[str, int]]], runs: int) -> None:
    """Each in turn, `runs` times, after a warm-up as long for every source: workers start, and the JVM compiles."""
    warm_at = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm_at:
        for job in jobs.values():
            job()
    for _ in range(runs):
        for what, job in jobs.items():
            begin = time.monotonic()
            found = job()
            say(what=what, seconds=time.monotonic() - begin, **found)


JOBS: dict[str, Callable[..., None]] = {
    "read": read,
    "descriptor": descriptor,
    "stream": stream,
    "trigger": trigger,
    "write": write,
}


def main(what: str, source: str, bootstrap: str, http: str, topic: str, *arguments: str) -> None:
    job = Job(source, bootstrap, http, topic)
    try:
        JOBS[what](job, *arguments)
    finally:
        job.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
