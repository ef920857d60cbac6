"""A topic of many times its keys that is compacted, beside Apache Kafka's cleaner.

Nothing may be compacted while the topic is written (`min.compaction.lag.ms`); then everything may.  How large the topic
is, both servers say alike (DescribeLogDirs): a run of compaction is over when that has become less, and does not change
for a while.  The time counts to the last change.
"""

import random
import time

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import ConfigResource

from bench import admin, process, stats
from bench.connection import Connection
from bench.measures import SIZES, Effort, Measure, Tools
from bench.process import RunFailed
from bench.servers import HOST, Server
from bench.stats import Better, Figure, Samples
from magnetar.wire.kafka.messages.describe_log_dirs import (
    API_KEY,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

TOPIC = "bench-compacted"
SIZE = SIZES["1KiB"]
RECORDS_PER_KEY = 10
SEGMENTS = 32
VERSION = 1  # of DescribeLogDirs: every version says the sizes
UNCHANGED_SECONDS = 3.0
POLL_SECONDS = 0.02
SECONDS_MAX = 300.0
SETTINGS = ("log.cleaner.backoff.ms=100",)  # how long either server waits before it looks for work
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": str(1 << 40),
    "file.delete.delay.ms": "0",
}


def compaction(server: Server, _tools: Tools, effort: Effort) -> Samples:
    """How fast what is dirty is read through, what that costs, and how much of the topic is left."""
    count = effort.bulk_bytes // SIZE
    config = CONFIG | {"segment.bytes": str(effort.bulk_bytes // SEGMENTS)}
    with admin.topic(server.bootstrap, TOPIC, 1, config):
        _write(server, count)
        written = _size(server)
        before = process.cpu_time(server.pid)
        began = time.monotonic()
        admin.configure(server.bootstrap, ConfigResource.Type.TOPIC, TOPIC, {"min.compaction.lag.ms": "0"})
        left, ended = _wait_until_compacted(server, written)
        cpu = process.cpu_time(server.pid) - before
    return {
        "compaction_mb_s": [written / (ended - began) / stats.MB],
        "compaction_cpu_s_gb": [stats.per_gb(cpu.total, written)],
        "compaction_left_share": [left / written],
    }


def _write(server: Server, count: int) -> None:
    """Records of keys drawn at random, the same for every server; RunFailed when one is not acknowledged."""
    chance = random.Random(1)
    keys = [b"key-%08d" % number for number in range(count // RECORDS_PER_KEY)]
    value = chance.randbytes(SIZE - len(keys[0]))
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "linger.ms": 20,
        }
    )
    for _ in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, chance.choice(keys), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(SECONDS_MAX)
    if failures or left:
        raise RunFailed(
            f"not all records were acknowledged: {failures[0] if failures else f'{left} are left'}"
        )


def _size(server: Server) -> int:
    """The topic's size in bytes."""
    connection = Connection(HOST, server.port)
    try:
        request = DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, [0])])
        answer = connection.call(API_KEY, VERSION, request)
    finally:
        connection.socket.close()
    rows = [row for found in answer.results for topic in found.topics for row in topic.partitions]
    if not rows:
        raise RunFailed(f"DescribeLogDirs does not know {TOPIC}")
    return int(sum(row.partition_size for row in rows))


def _wait_until_compacted(server: Server, written: int) -> tuple[int, float]:
    """The size after a run, and when it became so (CLOCK_MONOTONIC)."""
    size, changed = written, time.monotonic()
    give_up = changed + SECONDS_MAX
    while size > written // 2 or time.monotonic() - changed < UNCHANGED_SECONDS:
        if time.monotonic() > give_up:
            raise RunFailed(
                f"the topic was not compacted within {SECONDS_MAX:.0f} s: {size} of {written} bytes"
            )
        time.sleep(POLL_SECONDS)
        now = _size(server)
        if now != size:
            size, changed = now, time.monotonic()
    return size, changed


COMPACTION_MEASURES: tuple[Measure, ...] = (
    Measure(
        "compaction-1KiB",
        f"compaction of 1 KiB records, {RECORDS_PER_KEY} for each key",
        (
            Figure("compaction_mb_s", "compaction 1 KiB", "MB/s", Better.HIGHER),
            Figure("compaction_cpu_s_gb", "compaction 1 KiB, server CPU", "s/GB", Better.LOWER),
            Figure("compaction_left_share", "compaction 1 KiB, what is left", "of 1", Better.LOWER),
        ),
        compaction,
        settings=SETTINGS,
        peer_settings=SETTINGS,
    ),
)
