"""What is measured with Kafka's clients, and the bars for it.

A measure runs once per server and pair and returns samples: field name (with its unit) -> values.  Everything that a
run creates it also removes, and the kernel's dirty pages are written out before the next run, so that no server pays
for the writes of the one before it.
"""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import admin, process, stats
from bench.client import KafkaTools, Librdkafka, Load
from bench.mirror import MirrorMaker
from bench.process import RunFailed
from bench.pulsar_client import PulsarPerf
from bench.pulsar_runner import PulsarRunner
from bench.servers import KAFKA, Server
from bench.spark_client import SparkJobs
from bench.stats import Better, Figure, Samples

SIZES = {"100B": 100, "1KiB": 1024, "16KiB": 16 * 1024}
HEADLINE_PARTITIONS = 4
GRID_PARTITIONS = (1, 10, 100)
CONSUME_REPEATS = 2  # reading is short: twice the samples for little time
SETTLE_SECONDS = 1.0  # work that a server puts off (segment writes, collection) still counts as the run's

SINGLE_SIZE = 100
ENTRY_CACHE_BYTES = 256 * 1024 * 1024
COLD_BACKLOG_BYTES = 4 * ENTRY_CACHE_BYTES
COLD_SETTINGS = (f"entry.cache.bytes={ENTRY_CACHE_BYTES}",)

UNSYNCED = ("journal.sync.data=false",)
LATENCY_SIZE = 1024
LATENCY_RATE = 20_000
WARM_UP_SECONDS = 10

TOPIC_COUNT = 10_000

_topic_numbers = itertools.count(1)


@dataclass(frozen=True)
class Effort:
    """How much work one run is; `--quick` makes it less."""

    bulk_bytes: int
    single_count: int
    latency_seconds: int
    pairs: int
    pairs_max: int
    """Where the runs of `pairs` do not allow a verdict.  From nine on, one that is out of line does not count."""


FULL = Effort(bulk_bytes=1_000_000_000, single_count=100_000, latency_seconds=20, pairs=3, pairs_max=9)
QUICK = Effort(bulk_bytes=500_000_000, single_count=50_000, latency_seconds=10, pairs=3, pairs_max=3)


@dataclass(frozen=True)
class Tools:
    """The clients of a run; what needs a script of the peers is None where that is missing."""

    client: Librdkafka
    java: KafkaTools | None
    perf: PulsarPerf | None = None
    spark: SparkJobs = SparkJobs(None)  # noqa: RUF009 - it has no state
    mirror: MirrorMaker | None = None
    runner: PulsarRunner | None = None


Run = Callable[[Server, Tools, Effort], Samples]


@dataclass(frozen=True)
class Measure:
    """`settings` start a Magnetar of its own, `peer_settings` a peer; `fresh` gives every run a stopped server with an
    empty data folder.

    `peer` is the server that runs in turn with Magnetar; none where it is called "".  `table` is that of the
    report which it belongs to, by default its peer's.  `calm` waits before each run until the disk by itself answers
    evenly, minutes if need be.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    run: Run
    quick: bool = False
    repeated: bool = True  # in every pair; else once
    settings: tuple[str, ...] = ()
    peer_settings: tuple[str, ...] = ()
    fresh: bool = False
    peer: str = KAFKA
    table: str = ""
    calm: bool = False


def bulk(size: int, partitions: int) -> Run:
    """Produce a backlog as fast as the client can, then read it back."""

    def run(server: Server, tools: Tools, effort: Effort) -> Samples:
        count = effort.bulk_bytes // size
        with admin.topic(server.bootstrap, _topic("bulk"), partitions) as topic:
            return produce_and_consume(server, tools.client, topic, size, partitions, count)

    return run


def warm(size: int) -> Run:
    """Produce as `bulk` does, on a machine whose free memory has just been used.

    Where a hypervisor takes back what a guest frees, a page that was free for a while costs a trip to the host when it
    is used again: a server that writes through the page cache pays that for every page.  A machine that has been busy
    for days, or has its memory to itself, does not know this cost.
    """

    def run(server: Server, tools: Tools, effort: Effort) -> Samples:
        samples: Samples = {}
        count = effort.bulk_bytes // size
        with admin.topic(server.bootstrap, _topic("warm"), HEADLINE_PARTITIONS) as topic:
            process.use_memory(effort.bulk_bytes * 5 // 4)
            watch = Watch(server)
            load = tools.client.produce(server.bootstrap, topic, size=size, count=count)
            stats.add_sample(samples, bulk_sample("produce", load, *watch.stop(load.finished.cpu)))
        return samples

    return run


def cold(size: int) -> Run:
    """Read a backlog four times the size of Magnetar's entry cache."""

    def run(server: Server, tools: Tools, _effort: Effort) -> Samples:
        count = COLD_BACKLOG_BYTES // size
        with admin.topic(server.bootstrap, _topic("cold"), HEADLINE_PARTITIONS) as topic:
            return produce_and_consume(server, tools.client, topic, size, HEADLINE_PARTITIONS, count)

    return run


def single(server: Server, tools: Tools, effort: Effort) -> Samples:
    """One record in each Produce request, pipelined as deep as librdkafka likes."""
    settings = ("linger.ms=0", "batch.num.messages=1")
    samples: Samples = {}
    with admin.topic(server.bootstrap, _topic("single"), HEADLINE_PARTITIONS) as topic:
        count = effort.single_count
        watch = Watch(server)
        load = tools.client.produce(server.bootstrap, topic, size=SINGLE_SIZE, count=count, settings=settings)
        cpu, noise = watch.stop(load.finished.cpu)
        stats.add_sample(
            samples,
            {
                "requests_s": load.transfer.messages_per_second,
                "request_cpu_us": cpu.total / count * 1e6,
                "request_cpu_user_us": cpu.user / count * 1e6,
                "request_cpu_system_us": cpu.system / count * 1e6,
                "others_cpu_share": noise,
            },
        )
    return samples


def latency(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Acknowledgement times at a rate that both servers hold with ease."""
    if tools.java is None:
        raise RunFailed("the peers' kafka script is not here, and with it Kafka's ProducerPerformance")
    samples: Samples = {}
    with admin.topic(server.bootstrap, _topic("latency"), HEADLINE_PARTITIONS) as topic:
        before = process.cpu_time(server.pid)
        found = tools.java.run(
            server.bootstrap,
            topic,
            size=LATENCY_SIZE,
            rate=LATENCY_RATE,
            warm_up_seconds=WARM_UP_SECONDS,
            seconds=effort.latency_seconds,
        )
        cpu = process.cpu_time(server.pid) - before
    total_bytes = LATENCY_RATE * LATENCY_SIZE * (WARM_UP_SECONDS + effort.latency_seconds)
    stats.add_sample(
        samples,
        {
            "p50_ms": found.p50_ms,
            "p95_ms": found.p95_ms,
            "p99_ms": found.p99_ms,
            "p999_ms": found.p999_ms,
            "rate_s": found.records_per_second,
            "latency_cpu_s_gb": stats.per_gb(cpu.total, total_bytes),
        },
    )
    return samples


def start(server: Server, _tools: Tools, _effort: Effort) -> Samples:
    """An empty data folder, then the same one again."""
    first = server.start()
    resident = process.resident_mb(server.pid)
    server.stop()
    again = server.start()
    return {"start_first_s": [first], "start_again_s": [again], "start_rss_mb": [resident]}


def topics(server: Server, _tools: Tools, _effort: Effort) -> Samples:
    """Create 10,000 topics of one partition, look at the memory, stop, start, wait until all have a leader."""
    server.start()
    empty = process.resident_mb(server.pid)
    begin = time.monotonic()
    admin.create_topics(server.bootstrap, [f"topic-{number:05}" for number in range(TOPIC_COUNT)])
    server.wait_for_topics(TOPIC_COUNT)
    created = time.monotonic() - begin
    time.sleep(SETTLE_SECONDS)
    resident = process.resident_mb(server.pid)
    begin = time.monotonic()
    server.stop()
    stopped = time.monotonic() - begin
    server.start()
    serving = server.wait_for_topics(TOPIC_COUNT)
    return {
        "topics_create_s": [created],
        "topics_rss_mb": [resident],
        "topics_rss_added_mb": [resident - empty],
        "topics_stop_s": [stopped],
        "topics_restart_s": [serving],
        "topics_restart_rss_mb": [process.resident_mb(server.pid)],
    }


def warm_up(server: Server, tools: Tools) -> None:
    """A JVM compiles what it runs often: give it (and us) the same first half gigabyte, which is not measured."""
    for size in (100, 1024, 16 * 1024):
        count = 200_000_000 // size
        with admin.topic(server.bootstrap, _topic("warmup"), HEADLINE_PARTITIONS) as topic:
            produce_and_consume(server, tools.client, topic, size, HEADLINE_PARTITIONS, count)


def produce_and_consume(
    server: Server,
    client: Librdkafka,
    topic: str,
    size: int,
    partitions: int,
    count: int,
    *,
    bootstrap: str | None = None,
    settings: Sequence[str] = (),
) -> Samples:
    """A backlog written and read back; at another listener with `bootstrap`, and the client's settings for it."""
    where = server.bootstrap if bootstrap is None else bootstrap
    samples: Samples = {}
    watch = Watch(server)
    load = client.produce(where, topic, size=size, count=count, settings=settings)
    stats.add_sample(samples, bulk_sample("produce", load, *watch.stop(load.finished.cpu)))
    for _ in range(CONSUME_REPEATS):
        watch = Watch(server)
        load = client.consume(where, topic, partitions=partitions, count=count, settings=settings)
        stats.add_sample(samples, bulk_sample("consume", load, *watch.stop(load.finished.cpu)))
    return samples


def bulk_sample(verb: str, load: Load, cpu: process.CpuTime, noise: float) -> dict[str, float]:
    moved = load.transfer
    sample = {
        f"{verb}_messages_s": moved.messages_per_second,
        f"{verb}_mb_s": moved.mb_per_second,
        f"{verb}_cpu_s_gb": stats.per_gb(cpu.total, moved.bytes),
        f"{verb}_cpu_user_s_gb": stats.per_gb(cpu.user, moved.bytes),
        f"{verb}_cpu_system_s_gb": stats.per_gb(cpu.system, moved.bytes),
        f"{verb}_client_cpu_s_gb": stats.per_gb(load.finished.cpu.total, moved.bytes),
        f"{verb}_others_cpu_share": noise,
    }
    if load.messages_per_request is not None:
        requests = moved.messages / load.messages_per_request
        sample[f"{verb}_messages_per_request"] = load.messages_per_request
        sample[f"{verb}_request_cpu_us"] = cpu.total / requests * 1e6
    return sample


class Watch:
    """Server CPU of one client run, and how much of the machine other processes took meanwhile."""

    def __init__(self, server: Server) -> None:
        os.sync()
        self.pid = server.pid
        self.begin = time.monotonic()
        self.cpu = process.cpu_time(self.pid)
        self.busy = process.machine_busy()

    def stop(self, client: process.CpuTime) -> tuple[process.CpuTime, float]:
        """The server's CPU time, and the share (0 to 1) of all processors that neither it nor the client used."""
        time.sleep(SETTLE_SECONDS)
        cpu = process.cpu_time(self.pid) - self.cpu
        busy = process.machine_busy() - self.busy
        others = busy - cpu.total - client.total
        return cpu, process.share_of_machine(others, time.monotonic() - self.begin)


def _topic(purpose: str) -> str:
    return f"bench-{purpose}-{next(_topic_numbers)}"


_BULK_BARS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    # size: produce (bar, goal), consume from the entry cache (bar, goal)
    "100B": ((1.5, 2.5), (1.3, 1.5)),
    "1KiB": ((3.0, 5.0), (1.4, 2.0)),
    "16KiB": ((3.0, 4.0), (1.6, 3.0)),
}
_PRODUCE_CPU_BARS = {"100B": (0.6, 0.3), "1KiB": (0.25, 0.15), "16KiB": (0.25, 0.15)}


def _headline(size: str) -> Measure:
    (produce_bar, produce_goal), (consume_bar, consume_goal) = _BULK_BARS[size]
    by_count = size == "100B"  # its bar is in messages; bytes say the same, as all are of one size
    figures = [
        Figure(
            "produce_messages_s" if by_count else "produce_mb_s",
            f"produce {size}",
            "msg/s" if by_count else "MB/s",
            Better.HIGHER,
            produce_bar,
            produce_goal,
        ),
        Figure(
            "produce_cpu_s_gb",
            f"produce {size}, server CPU",
            "s/GB",
            Better.LOWER,
            *_PRODUCE_CPU_BARS[size],
        ),
        Figure("consume_mb_s", f"consume {size}, cached", "MB/s", Better.HIGHER, consume_bar, consume_goal),
        Figure("consume_cpu_s_gb", f"consume {size}, server CPU", "s/GB", Better.LOWER),
    ]
    run = bulk(SIZES[size], HEADLINE_PARTITIONS)
    title = f"{size} records, {HEADLINE_PARTITIONS} partitions"
    return Measure(f"bulk-{size}", title, tuple(figures), run, quick=True)


def _grid(size: str, partitions: int) -> Measure:
    where = f"{size} x {partitions}"
    figures = (
        Figure("produce_messages_s", f"produce {where}", "msg/s", Better.HIGHER),
        Figure("produce_mb_s", f"produce {where}", "MB/s", Better.HIGHER),
        Figure("produce_cpu_s_gb", f"produce {where}, server CPU", "s/GB", Better.LOWER),
        Figure("produce_request_cpu_us", f"produce {where}, server CPU", "us/request", Better.LOWER),
        Figure("consume_messages_s", f"consume {where}", "msg/s", Better.HIGHER),
        Figure("consume_mb_s", f"consume {where}", "MB/s", Better.HIGHER),
        Figure("consume_cpu_s_gb", f"consume {where}, server CPU", "s/GB", Better.LOWER),
    )
    title = f"{size} records, {partitions} partition{'s' if partitions > 1 else ''}"
    return Measure(f"grid-{size}-{partitions}", title, figures, bulk(SIZES[size], partitions), repeated=False)


def _warm(size: str) -> Measure:
    figures = (
        Figure("produce_mb_s", f"produce {size}, warm memory", "MB/s", Better.HIGHER),
        Figure("produce_cpu_s_gb", f"produce {size}, warm memory, server CPU", "s/GB", Better.LOWER),
    )
    return Measure(f"warm-{size}", f"{size} records, memory used just before", figures, warm(SIZES[size]))


def _cold(size: str) -> Measure:
    figures = (
        Figure("consume_mb_s", f"consume {size}, 4x the entry cache", "MB/s", Better.HIGHER, 0.9, 1.2),
        Figure("consume_cpu_s_gb", f"consume {size}, 4x the cache, server CPU", "s/GB", Better.LOWER),
    )
    title = f"{size} records, backlog of four entry caches"
    return Measure(f"cold-{size}", title, figures, cold(SIZES[size]), settings=COLD_SETTINGS)


def _latency(
    name: str,
    what: str,
    bar: float,
    goal: float,
    *,
    settings: tuple[str, ...] = (),
    peer_settings: tuple[str, ...] = (),
) -> Measure:
    figures = (
        Figure("p50_ms", f"p50 at 20,000 msg/s, {what}", "ms", Better.LOWER),
        Figure("p99_ms", f"p99 at 20,000 msg/s, {what}", "ms", Better.LOWER, bar, goal),
    )
    title = f"{LATENCY_RATE:,} msg/s of 1 KiB, {what}"
    return Measure(
        f"latency-{name}", title, figures, latency, settings=settings, peer_settings=peer_settings, calm=True
    )


MEASURES: tuple[Measure, ...] = (
    # First, as it alone waits for what earlier writing leaves the disk to do.
    Measure(
        "latency",
        f"{LATENCY_RATE:,} msg/s of 1 KiB",
        (
            Figure("p50_ms", "p50 at 20,000 msg/s", "ms", Better.LOWER),
            Figure("p99_ms", "p99 at 20,000 msg/s", "ms", Better.LOWER, 1.0, 0.5),
        ),
        latency,
        calm=True,
    ),
    # The same at equal durability, which tells the disk's share from the server's.
    _latency("synced", "each synced", 0.5, 0.25, peer_settings=("log.flush.interval.messages=1",)),
    _latency("unsynced", "neither synced", 1.0, 0.5, settings=UNSYNCED),
    *(_headline(size) for size in SIZES),
    Measure(
        "single",
        "one record per request",
        (
            Figure("requests_s", "one record per request", "req/s", Better.HIGHER, 2.8, 4.0),
            Figure(
                "request_cpu_us", "one record per request, server CPU", "us/request", Better.LOWER, 0.4, 0.3
            ),
        ),
        single,
        quick=True,
    ),
    *(_warm(size) for size in SIZES),
    _cold("1KiB"),
    _cold("16KiB"),
    Measure(
        "start",
        "process start until the first Metadata answer",
        (
            Figure("start_first_s", "start, empty data folder", "s", Better.LOWER, limit=2.0),
            Figure("start_again_s", "start again", "s", Better.LOWER, limit=2.0),
            Figure("start_rss_mb", "memory after start", "MB", Better.LOWER),
        ),
        start,
        quick=True,
        fresh=True,
    ),
    Measure(
        "topics",
        f"{TOPIC_COUNT:,} topics",
        (
            Figure("topics_create_s", "10,000 topics: create", "s", Better.LOWER, 1.0, 0.3),
            Figure("topics_rss_mb", "10,000 topics: memory", "MB", Better.LOWER, 1.0, 0.3),
            Figure("topics_restart_s", "10,000 topics: restart to serving", "s", Better.LOWER, 1.0, 0.3),
        ),
        topics,
        repeated=False,
        fresh=True,
    ),
    *(_grid(size, partitions) for size in SIZES for partitions in GRID_PARTITIONS),
)
