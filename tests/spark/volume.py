"""Millions of records, written by clients of both protocols, read back by Spark: exact counts and checksums.

    python -m tests.spark.volume                              # 20 M of 100 B and 2 M of 1 KiB, plain and compressed
    python -m tests.spark.volume --small 200000 --large 20000

Half of each topic is written by Kafka's client and half by Pulsar's, at the same time and into the same partitions, so
that their entries lie between each other's.  Each topic is read as a batch from its files and as a stream in
micro-batches; a few numbers say whether a record is missing, doubled or changed: how many there are, how many bytes,
the sum of the checksums of all values, and in each partition as many records as offsets.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pulsar

from magnetar.testing.server import MagnetarProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
SMALL_BYTES, LARGE_BYTES = 100, 1024
BATCHES_OF_A_STREAM = 4
FLUSH_S = 300


@dataclass(frozen=True)
class Total:
    """What is compared: `checksums` is the sum of the CRC-32 of all values."""

    records: int
    size: int
    checksums: int

    def __add__(self, other: "Total") -> "Total":
        return Total(self.records + other.records, self.size + other.size, self.checksums + other.checksums)


def values(first: int, count: int, size: int) -> Iterator[bytes]:
    """Values that are all different, and do not compress to nothing."""
    for number in range(first, first + count):
        yield (b"%015d|" % number * (size // 16 + 1))[:size]


def write_kafka(bootstrap: str, topic: str, count: int, size: int, compression: str) -> Total:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 50,
            "queue.buffering.max.messages": 200_000,
        }
    )
    checksums = 0
    for number, value in enumerate(values(0, count, size)):
        checksums += zlib.crc32(value)
        while True:
            try:
                producer.produce(topic, value, partition=number // 5_000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(FLUSH_S) == 0
    return Total(count, count * size, checksums)


def write_pulsar(url: str, topic: str, count: int, size: int, compression: str) -> Total:
    kind = pulsar.CompressionType.NONE if compression == "none" else pulsar.CompressionType.ZSTD
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    producers = [
        client.create_producer(
            f"{topic}-partition-{partition}",
            compression_type=kind,
            batching_enabled=True,
            batching_max_messages=1_000,
            batching_max_publish_delay_ms=20,
            block_if_queue_full=True,
            max_pending_messages=20_000,
        )
        for partition in range(PARTITIONS)
    ]
    failed: list[object] = []

    def sent(result: "pulsar.Result", _: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    checksums = 0
    for number, value in enumerate(values(1 << 40, count, size)):
        checksums += zlib.crc32(value)
        producers[number // 5_000 % PARTITIONS].send_async(value, sent)
    for producer in producers:
        producer.flush()
    client.close()
    assert not failed, failed[:3]
    return Total(count, count * size, checksums)


def write(server: MagnetarProcess, topic: str, count: int, size: int, compression: str) -> Total:
    """`count` records, half by each client, in two processes at once."""
    kafka = (server.bootstrap, topic, count - count // 2, size, compression)
    by_pulsar = (server.pulsar_url, topic, count // 2, size, compression)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = [pool.apply_async(write_kafka, kafka), pool.apply_async(write_pulsar, by_pulsar)]
        first, second = (result.get() for result in results)
    return first + second


def read_batch(spark: "SparkSession", server: MagnetarProcess, topic: str) -> Total:
    frame = spark.read.format("magnetar").option("admin.url", server.http_url).option("subscribe", topic)
    schema = "partition int, offset bigint, value binary"
    return _total(_summed(frame.schema(schema).load()).collect(), topic)


def read_stream(spark: "SparkSession", server: MagnetarProcess, topic: str, count: int) -> Total:
    rows: list[Any] = []

    def keep(batch: "DataFrame", batch_id: int) -> None:
        rows.extend(_summed(batch).collect())

    with tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("magnetar")
            .option("admin.url", server.http_url)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", count // BATCHES_OF_A_STREAM + 1)
            .schema("partition int, offset bigint, value binary")
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", folder)
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
    return _total(rows, topic)


def _summed(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    return frame.groupBy("partition").agg(
        F.count("*").alias("records"),
        F.sum(F.length("value")).alias("size"),
        F.sum(F.crc32("value")).alias("checksums"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
    )


def _total(rows: list[Any], topic: str) -> Total:
    """The sum of all rows, whose offsets have to lie side by side."""
    for partition in {row.partition for row in rows}:
        own = sorted((row.first, row.last, row.records) for row in rows if row.partition == partition)
        reached = 0
        for first, last, records in own:
            assert (first, last) == (reached, reached + records - 1), f"{topic}-{partition}: {own}"
            reached = last + 1
    return Total(
        sum(row.records for row in rows), sum(row.size for row in rows), sum(row.checksums for row in rows)
    )


def check(spark: "SparkSession", server: MagnetarProcess, topic: str, written: Total) -> dict[str, float]:
    """Read a topic both ways and compare; seconds that reading took."""
    seconds: dict[str, float] = {}
    for how in ("batch", "stream"):
        begun = time.monotonic()
        if how == "batch":
            found = read_batch(spark, server, topic)
        else:
            found = read_stream(spark, server, topic, written.records)
        seconds[how] = time.monotonic() - begun
        assert found == written, f"{topic} as a {how}: {found}, and {written} was written"
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", type=int, default=20_000_000, help="records of 100 B")
    parser.add_argument("--large", type=int, default=2_000_000, help="records of 1 KiB")
    arguments = parser.parse_args()
    from confluent_kafka.admin import AdminClient, NewTopic

    from magnetar.pipelines.spark import session

    with MagnetarProcess() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        spark = session.start("volume", master="local[2]", shuffle_partitions=2)
        try:
            for count, size in ((arguments.small, SMALL_BYTES), (arguments.large, LARGE_BYTES)):
                for compression in ("none", "zstd"):
                    topic = f"volume-{size}-{compression}"
                    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(FLUSH_S)
                    begun = time.monotonic()
                    written = write(server, topic, count, size, compression)
                    seconds = {"write": time.monotonic() - begun, **check(spark, server, topic, written)}
                    rounded = {what: round(value, 1) for what, value in seconds.items()}
                    print(
                        json.dumps({"topic": topic, "records": written.records, "seconds": rounded}),
                        flush=True,
                    )
        finally:
            spark.stop()
    print("all counts and checksums are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
