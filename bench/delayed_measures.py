"""Ten million delayed messages of one Shared subscription, beside Apache Pulsar.

The messages are sent, then a consumer comes: the server reads them and finds that none is due.  Measured is how long
that takes, what it costs, and by how much the server has grown when it knows the times of all.
"""

import itertools
import random
import time

import pulsar

from bench import process, pulsar_server
from bench.measures import Effort, Measure, Tools, Watch
from bench.process import RunFailed
from bench.pulsar_client import Addresses
from bench.pulsar_server import PULSAR
from bench.servers import Server
from bench.stats import Better, Figure, Samples

MESSAGE_BYTES = 100  # a full run has ten million
DELAY_MS = (24 * 3_600_000, 28 * 24 * 3_600_000)
SUBSCRIPTION = "s"
POLL_SECONDS = 0.5
STALLED_SECONDS_MAX = 120.0

_numbers = itertools.count(1)


def delayed(server: Server, _tools: Tools, effort: Effort) -> Samples:
    """RunFailed when a message is not acknowledged, and when the server does not come to the end of them."""
    where = pulsar_server.addresses(server)
    count = effort.bulk_bytes // MESSAGE_BYTES
    with pulsar_server.topic(where, f"bench-delayed-{next(_numbers)}", 1) as name:
        client = pulsar.Client(where.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            began = time.monotonic()
            _send(client, name, count)
            sent = time.monotonic() - began
            before = process.resident_mb(server.pid)
            watch = Watch(server)
            began = time.monotonic()
            client.subscribe(
                name,
                SUBSCRIPTION,
                consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
            )
            _wait_until_delayed(where, name, count)
            took = time.monotonic() - began
            cpu, _ = watch.stop(process.CpuTime(0.0, 0.0))
            grown = process.resident_mb(server.pid) - before
        finally:
            client.close()
    return {
        "delayed_sent_messages_s": [count / sent],
        "delayed_messages_s": [count / took],
        "delayed_cpu_us": [cpu.total / count * 1e6],
        "delayed_rss_added_mb": [grown],
    }


def _send(client: pulsar.Client, name: str, count: int) -> None:
    failed: list[pulsar.Result] = []

    def sent(result: pulsar.Result, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    producer = client.create_producer(
        name, block_if_queue_full=True, max_pending_messages=10_000, send_timeout_millis=120_000
    )
    chance, now_ms = random.Random(1), int(time.time() * 1000)
    value = b"x" * MESSAGE_BYTES
    for _ in range(count):
        producer.send_async(value, sent, deliver_at=now_ms + chance.randrange(*DELAY_MS))
    producer.flush()
    producer.close()
    if failed:
        raise RunFailed(f"{len(failed)} messages were not sent: {failed[0]}")


def _wait_until_delayed(where: Addresses, name: str, count: int) -> None:
    path = f"persistent/public/default/{name}-partition-0/stats"
    last, moved = -1, time.monotonic()
    while last < count:
        stats = pulsar_server.request(where, "GET", path)
        now = stats["subscriptions"].get(SUBSCRIPTION, {}).get("msgDelayed", 0)
        if now != last:
            last, moved = now, time.monotonic()
        elif time.monotonic() - moved > STALLED_SECONDS_MAX:
            raise RunFailed(f"the server has delayed {last} of {count} messages, and no more")
        time.sleep(POLL_SECONDS)


DELAYED_MEASURES: tuple[Measure, ...] = (
    Measure(
        "pulsar-delayed",
        "ten million delayed messages",
        (
            Figure("delayed_messages_s", "delayed messages read", "msg/s", Better.HIGHER),
            Figure("delayed_cpu_us", "delayed messages read, server CPU", "us/message", Better.LOWER),
            Figure("delayed_rss_added_mb", "delayed messages, resident memory added", "MB", Better.LOWER),
        ),
        delayed,
        repeated=False,
        peer=PULSAR,
    ),
)
