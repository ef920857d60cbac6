"""What is measured with Pulsar's clients, and the bars for it.

Magnetar, whose journal is synced, beside Apache Pulsar standalone as it ships, whose journal is not.  The measures from
one protocol to the other compare Magnetar with itself: beside both ends in one protocol.
"""

import itertools
import time

from bench import admin, process, pulsar_server, stats
from bench.client import Librdkafka
from bench.measures import (
    HEADLINE_PARTITIONS,
    LATENCY_RATE,
    SIZES,
    UNSYNCED,
    WARM_UP_SECONDS,
    Effort,
    Measure,
    Run,
    Tools,
    Watch,
)
from bench.process import RunFailed
from bench.pulsar_client import Addresses, PulsarLoad, PulsarPerf
from bench.pulsar_server import PULSAR
from bench.servers import Server
from bench.stats import Better, Figure, Samples

COUNT_MAX = 2_000_000  # of 100 B, a full run would be ten million messages
WARM_UP_BYTES = 200_000_000
SUBSCRIPTIONS = 1000
SUBSCRIPTIONS_RATE = 50
SUBSCRIPTIONS_SECONDS = 15
SUBSCRIPTIONS_SIZE = 1024
CROSS_SIZE = 1024
LATENCY_SIZE = 1024

_numbers = itertools.count(1)


def bulk(size: int) -> Run:
    """Produce a backlog as fast as the client can, then read it back from a new subscription."""

    def run(server: Server, tools: Tools, effort: Effort) -> Samples:
        where, perf = pulsar_server.addresses(server), _perf(tools)
        count = min(effort.bulk_bytes // size, COUNT_MAX)
        samples: Samples = {}
        with pulsar_server.topic(where, _name("bulk"), HEADLINE_PARTITIONS) as topic:
            sent = _produce(server, perf, where, topic, size, count, samples)
            for _ in range(2):
                _consume(server, perf, where, topic, size, sent, samples)
        return samples

    return run


def latency(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Acknowledgement times at a rate that both servers hold with ease."""
    where, perf = pulsar_server.addresses(server), _perf(tools)
    samples: Samples = {}
    with pulsar_server.topic(where, _name("latency"), HEADLINE_PARTITIONS) as topic:
        watch = Watch(server)
        load = perf.produce(
            where,
            topic,
            size=LATENCY_SIZE,
            count=LATENCY_RATE * (WARM_UP_SECONDS + effort.latency_seconds),
            rate=LATENCY_RATE,
            warm_up_seconds=WARM_UP_SECONDS,
        )
        cpu, noise = watch.stop(load.finished.cpu)
        stats.add_sample(
            samples,
            {
                "p50_ms": load.latency.p50_ms,
                "p99_ms": load.latency.p99_ms,
                "p999_ms": load.latency.p999_ms,
                "latency_cpu_s_gb": stats.per_gb(cpu.total, load.transfer.bytes),
                "others_cpu_share": noise,
            },
        )
    return samples


def subscriptions(server: Server, tools: Tools, _effort: Effort) -> Samples:
    """A slow producer, every message of which goes to a thousand subscriptions."""
    where, perf = pulsar_server.addresses(server), _perf(tools)
    with pulsar_server.topic(where, _name("subscriptions"), 1) as topic:
        before = process.resident_mb(server.pid)
        log = server.folder / "subscriptions.log"
        with perf.consuming(where, topic, "s", subscriptions=SUBSCRIPTIONS, log=log) as consuming:
            began = time.monotonic()
            consuming.wait_until_there()
            attached = time.monotonic() - began
            resident = process.resident_mb(server.pid)
            cpu_before = process.cpu_time(server.pid)
            perf.produce(
                where,
                topic,
                size=SUBSCRIPTIONS_SIZE,
                count=SUBSCRIPTIONS_RATE * SUBSCRIPTIONS_SECONDS,
                rate=SUBSCRIPTIONS_RATE,
            )
            cpu = process.cpu_time(server.pid) - cpu_before
            received, delay = consuming.stop(SUBSCRIPTIONS_SIZE)
        return {
            "subscriptions_attach_s": [attached],
            "subscriptions_rss_added_mb": [resident - before],
            "subscriptions_cpu_us": [cpu.total / received.messages * 1e6],
            "subscriptions_p50_ms": [delay.p50_ms],
            "subscriptions_p99_ms": [delay.p99_ms],
        }


def cross(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Each protocol reads what each wrote."""
    where, perf = pulsar_server.addresses(server), _perf(tools)
    count = effort.bulk_bytes // CROSS_SIZE
    samples: Samples = {}
    with pulsar_server.topic(where, _name("from-pulsar"), HEADLINE_PARTITIONS) as topic:
        sent = perf.produce(where, topic, size=CROSS_SIZE, count=count).transfer.messages
        _read_both(server, tools.client, perf, where, topic, sent, samples, "pulsar")
    with admin.topic(server.bootstrap, _name("from-kafka"), HEADLINE_PARTITIONS) as topic:
        tools.client.produce(server.bootstrap, topic, size=CROSS_SIZE, count=count)
        _read_both(server, tools.client, perf, where, topic, count, samples, "kafka")
    return samples


def warm_up(server: Server, tools: Tools) -> None:
    """As Kafka's measures do: a JVM compiles what it runs often."""
    where, perf = pulsar_server.addresses(server), _perf(tools)
    for size in SIZES.values():
        with pulsar_server.topic(where, _name("warmup"), HEADLINE_PARTITIONS) as topic:
            count = min(WARM_UP_BYTES // size, COUNT_MAX // 4)
            sent = perf.produce(where, topic, size=size, count=count).transfer.messages
            perf.consume(where, topic, _name("s"), size=size, count=sent)


def _produce(
    server: Server, perf: PulsarPerf, where: Addresses, topic: str, size: int, count: int, samples: Samples
) -> int:
    watch = Watch(server)
    load = perf.produce(where, topic, size=size, count=count)
    stats.add_sample(samples, _sample("produce", watch, load))
    return load.transfer.messages


def _consume(
    server: Server, perf: PulsarPerf, where: Addresses, topic: str, size: int, count: int, samples: Samples
) -> None:
    watch = Watch(server)
    load = perf.consume(where, topic, _name("s"), size=size, count=count)
    stats.add_sample(samples, _sample("consume", watch, load))


def _sample(verb: str, watch: Watch, load: PulsarLoad) -> dict[str, float]:
    cpu, noise = watch.stop(load.finished.cpu)
    return {
        f"{verb}_messages_s": load.transfer.messages_per_second,
        f"{verb}_mb_s": load.transfer.mb_per_second,
        f"{verb}_cpu_s_gb": stats.per_gb(cpu.total, load.transfer.bytes),
        f"{verb}_client_cpu_s_gb": stats.per_gb(load.finished.cpu.total, load.transfer.bytes),
        f"{verb}_p50_ms": load.latency.p50_ms,
        f"{verb}_p99_ms": load.latency.p99_ms,
        f"{verb}_others_cpu_share": noise,
    }


def _read_both(
    server: Server,
    kafka: Librdkafka,
    perf: PulsarPerf,
    where: Addresses,
    topic: str,
    count: int,
    samples: Samples,
    writer: str,
) -> None:
    """Twice each: the first one converts, the second one may find it done."""
    for turn in ("first", "again"):
        by_kafka = kafka.consume(
            server.bootstrap, topic, partitions=HEADLINE_PARTITIONS, count=count
        ).transfer
        by_pulsar = perf.consume(where, topic, _name("s"), size=CROSS_SIZE, count=count).transfer
        stats.add_sample(
            samples,
            {
                f"{writer}_to_kafka_{turn}_messages_s": by_kafka.messages_per_second,
                f"{writer}_to_pulsar_{turn}_messages_s": by_pulsar.messages_per_second,
            },
        )


def _perf(tools: Tools) -> PulsarPerf:
    if tools.perf is None:
        raise RunFailed("the peers' pulsar script is not here, and with it pulsar-perf")
    return tools.perf


def _name(purpose: str) -> str:
    return f"bench-{purpose}-{next(_numbers)}"


_RATE_BARS = {"100B": (1.5, 2.0), "1KiB": (1.5, 2.0)}
_CPU_BARS = {"100B": (0.35, 0.2), "1KiB": (0.35, 0.2)}
_DELIVERY_US_MAX = 10.0
_CROSS_BAR = 0.7


def _headline(size: str) -> Measure:
    rate, cpu = _RATE_BARS.get(size, ()), _CPU_BARS.get(size, ())
    figures = (
        Figure(
            "produce_messages_s",
            f"Pulsar produce {size}",
            "msg/s",
            Better.HIGHER,
            *rate,
        ),
        Figure("produce_cpu_s_gb", f"Pulsar produce {size}, server CPU", "s/GB", Better.LOWER, *cpu),
        Figure("produce_p99_ms", f"Pulsar produce {size}, p99 at full speed", "ms", Better.LOWER),
        Figure(
            "consume_messages_s",
            f"Pulsar consume {size}",
            "msg/s",
            Better.HIGHER,
            *rate,
        ),
        Figure("consume_cpu_s_gb", f"Pulsar consume {size}, server CPU", "s/GB", Better.LOWER, *cpu),
    )
    title = f"Pulsar, {size} messages, {HEADLINE_PARTITIONS} partitions"
    return Measure(f"pulsar-{size}", title, figures, bulk(SIZES[size]), quick=size == "1KiB", peer=PULSAR)


def _cross(field: str, label: str, same: str, bar: float | None = None) -> Figure:
    return Figure(field, label, "msg/s", Better.HIGHER, bar, against=same)


PULSAR_MEASURES: tuple[Measure, ...] = (
    *(_headline(size) for size in SIZES),
    Measure(
        "pulsar-latency",
        f"Pulsar, {LATENCY_RATE:,} msg/s of 1 KiB",
        (
            Figure("p50_ms", f"Pulsar p50 at {LATENCY_RATE:,} msg/s", "ms", Better.LOWER),
            Figure("p99_ms", f"Pulsar p99 at {LATENCY_RATE:,} msg/s", "ms", Better.LOWER),
            Figure("latency_cpu_s_gb", f"Pulsar at {LATENCY_RATE:,} msg/s, server CPU", "s/GB", Better.LOWER),
        ),
        latency,
        peer=PULSAR,
        calm=True,
    ),
    Measure(
        "pulsar-latency-unsynced",
        f"Pulsar, {LATENCY_RATE:,} msg/s of 1 KiB, Magnetar's journal not synced",
        (
            Figure("p50_ms", f"Pulsar p50 at {LATENCY_RATE:,} msg/s, ours not synced", "ms", Better.LOWER),
            Figure("p99_ms", f"Pulsar p99 at {LATENCY_RATE:,} msg/s, ours not synced", "ms", Better.LOWER),
        ),
        latency,
        settings=UNSYNCED,
        peer=PULSAR,
        calm=True,
    ),
    Measure(
        "pulsar-subscriptions",
        f"Pulsar, {SUBSCRIPTIONS:,} subscriptions of a topic",
        (
            Figure("subscriptions_attach_s", f"{SUBSCRIPTIONS:,} subscriptions: attach", "s", Better.LOWER),
            Figure(
                "subscriptions_rss_added_mb", f"{SUBSCRIPTIONS:,} subscriptions: memory", "MB", Better.LOWER
            ),
            Figure(
                "subscriptions_cpu_us",
                f"{SUBSCRIPTIONS:,} subscriptions: server CPU",
                "us/delivery",
                Better.LOWER,
                limit=_DELIVERY_US_MAX,
            ),
            Figure("subscriptions_p99_ms", f"{SUBSCRIPTIONS:,} subscriptions: p99", "ms", Better.LOWER, 1.0),
        ),
        subscriptions,
        repeated=False,
        peer=PULSAR,
    ),
    Measure(
        "pulsar-cross",
        "each protocol reads what the other wrote, 1 KiB",
        (
            _cross(
                "pulsar_to_kafka_first_messages_s",
                "Kafka reads Pulsar's, first time",
                "kafka_to_kafka_first_messages_s",
                _CROSS_BAR,
            ),
            _cross(
                "pulsar_to_kafka_again_messages_s",
                "Kafka reads Pulsar's, again",
                "kafka_to_kafka_again_messages_s",
            ),
            _cross(
                "kafka_to_pulsar_first_messages_s",
                "Pulsar reads Kafka's, first time",
                "pulsar_to_pulsar_first_messages_s",
                _CROSS_BAR,
            ),
            _cross(
                "kafka_to_pulsar_again_messages_s",
                "Pulsar reads Kafka's, again",
                "pulsar_to_pulsar_again_messages_s",
            ),
        ),
        cross,
        peer="",
    ),
)
