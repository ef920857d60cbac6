"""What is measured with Spark, and the bars for it.

Spark 4.3 with the source `magnetar` on Magnetar, beside Spark 4.0 with Kafka's own connector on Apache Kafka.  The same
client writes the same data for both, in the same run.  Spark and the server share the machine.
"""

import itertools
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from bench import admin, stats
from bench.measures import HEADLINE_PARTITIONS, SIZES, Effort, Measure, Run, Tools
from bench.process import RunFailed
from bench.servers import KAFKA, Server
from bench.stats import Better, Figure, Samples

TABLE = "spark"
RUNS = 3
KIB_ROWS = 2  # bytes of 1 KiB records for each byte of 100 B ones: as many seconds of reading
STREAM_ROWS_PER_TRIGGER = 2_000_000
TRIGGER_SECONDS = 20
TRIGGER_RATE = 1_000
WRITE_SIZE = 100

_numbers = itertools.count(1)


def read(size: int) -> Run:
    """A batch that reads a topic whole: as rows, and (Magnetar only) as descriptors of its files."""

    def run(server: Server, tools: Tools, effort: Effort) -> Samples:
        spark, count = tools.spark, _count(size, effort)
        samples: Samples = {}
        with _filled(server, tools, size, count) as topic:
            for found in spark.run("read", server, topic, RUNS):
                _check(found, count, size)
                _add(samples, found, count, size)
            if server.name != KAFKA:
                for found in spark.run("descriptor", server, topic, RUNS):
                    _check(found, count, size)
                    _add(samples, found, count, size)
        if (
            server.name == KAFKA
        ):  # what a descriptor job is held against: the connector has nothing of the kind
            for unit in ("rows_s", "mb_s"):
                samples[f"descriptor_{unit}"] = samples[f"noop_{unit}"]
        return samples

    return run


def stream(server: Server, tools: Tools, effort: Effort) -> Samples:
    """A stream that drains a topic in large micro-batches."""
    size = SIZES["100B"]
    count = _count(size, effort)
    samples: Samples = {}
    with _filled(server, tools, size, count) as topic:
        for found in tools.spark.run("stream", server, topic, RUNS, STREAM_ROWS_PER_TRIGGER):
            _check(found, count, size)
            _add(samples, found, count, size)
    return samples


def trigger(server: Server, tools: Tools, _effort: Effort) -> Samples:
    """Micro-batches one after the other, while a few records come in."""
    with admin.topic(server.bootstrap, _name("trigger"), 1) as topic, _trickle(server.bootstrap, topic):
        found = tools.spark.run("trigger", server, topic, TRIGGER_SECONDS)
    durations = [each["seconds"] for each in found]
    return {"trigger_s": [statistics.median(durations)], "trigger_lowest_s": [min(durations)]}


def write(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Rows that Spark makes, into a topic."""
    count = effort.bulk_bytes // WRITE_SIZE // 5
    samples: Samples = {}
    with admin.topic(server.bootstrap, _name("write"), HEADLINE_PARTITIONS) as topic:
        for found in tools.spark.run("write", server, topic, RUNS, WRITE_SIZE, count):
            _add(samples, found, count, WRITE_SIZE)
    return samples


def _add(samples: Samples, found: dict[str, Any], count: int, size: int) -> None:
    what, seconds = found["what"], found["seconds"]
    rates = {f"{what}_rows_s": count / seconds, f"{what}_mb_s": count * size / seconds / stats.MB}
    stats.add_sample(samples, rates)


def _check(found: dict[str, Any], count: int, size: int) -> None:
    """RunFailed when Spark has not seen every record; `noop` does not say."""
    if found.get("rows", count) != count or found.get("bytes", count * size) != count * size:
        raise RunFailed(
            f"Spark's {found['what']} saw {found['rows']} of {count} records of {size} B: {found}"
        )


@contextmanager
def _filled(server: Server, tools: Tools, size: int, count: int) -> Iterator[str]:
    with admin.topic(server.bootstrap, _name("read"), HEADLINE_PARTITIONS) as topic:
        tools.client.produce(server.bootstrap, topic, size=size, count=count)
        yield topic


@contextmanager
def _trickle(bootstrap: str, topic: str) -> Iterator[None]:
    """A producer that sends `TRIGGER_RATE` records a second, until the block ends."""
    ended = threading.Event()

    def send() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 2})
        while not ended.wait(0.01):
            for _ in range(TRIGGER_RATE // 100):
                producer.produce(topic, bytes(WRITE_SIZE))
            producer.poll(0)
        producer.flush(10)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def _count(size: int, effort: Effort) -> int:
    return effort.bulk_bytes * (1 if size == SIZES["100B"] else KIB_ROWS) // size


def _name(purpose: str) -> str:
    return f"bench-spark-{purpose}-{next(_numbers)}"


_ROW_BARS = (2.5, 3.0)
_DESCRIPTOR_BARS = (5.0, 8.0)
_TRIGGER_LIMIT_S = 0.07


def _read(size: str) -> Measure:
    higher = Better.HIGHER
    figures = (
        Figure("noop_rows_s", f"read {size} rows into nothing", "rows/s", higher, *_ROW_BARS),
        Figure("noop_mb_s", f"read {size} rows into nothing", "MB/s", higher),
        Figure("aggregate_rows_s", f"read {size} rows, count, sum, max", "rows/s", higher, *_ROW_BARS),
        Figure("aggregate_mb_s", f"read {size} rows, count, sum, max", "MB/s", higher),
        Figure(
            "descriptor_rows_s",
            f"decode and encode {size} by descriptor",
            "rows/s",
            higher,
            *_DESCRIPTOR_BARS,
        ),
        Figure("descriptor_mb_s", f"decode and encode {size} by descriptor", "MB/s", higher),
    )
    title = f"Spark, {size} records, {HEADLINE_PARTITIONS} partitions"
    return Measure(f"spark-{size}", title, figures, read(SIZES[size]), repeated=False, table=TABLE)


SPARK_MEASURES: tuple[Measure, ...] = (
    _read("100B"),
    _read("1KiB"),
    Measure(
        "spark-stream",
        "Spark, a stream of 100 B records that is drained",
        (Figure("stream_rows_s", "stream 100 B into nothing", "rows/s", Better.HIGHER),),
        stream,
        repeated=False,
        table=TABLE,
    ),
    Measure(
        "spark-trigger",
        f"Spark, {TRIGGER_RATE:,} records a second, 1 partition",
        (
            Figure("trigger_s", "micro-batch, median", "s", Better.LOWER, limit=_TRIGGER_LIMIT_S),
            Figure("trigger_lowest_s", "micro-batch, shortest", "s", Better.LOWER),
        ),
        trigger,
        repeated=False,
        table=TABLE,
    ),
    Measure(
        "spark-write",
        f"Spark writes {WRITE_SIZE} B records with a key",
        (Figure("write_rows_s", f"write {WRITE_SIZE} B rows", "rows/s", Better.HIGHER),),
        write,
        repeated=False,
        table=TABLE,
    ),
)
