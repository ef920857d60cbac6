"""What a process does first: the first 2 GB that it takes in, and that it gives out; each run has a process of its own.

`bulk-*` load servers that are warm.  Here nothing was touched before: neither the memory of the process nor, in a JVM,
its code.  The data folder is empty, or holds what the process before has written.
"""

from bench import admin, process, stats
from bench.measures import HEADLINE_PARTITIONS, SIZES, Effort, Measure, Run, Tools, Watch, bulk_sample
from bench.servers import Server
from bench.stats import Better, Figure, Samples

SIZE = "1KiB"
FIRST_BYTES = 2_000_000_000
BEHIND_BYTES = 500_000_000


def produce(server: Server, tools: Tools, _effort: Effort) -> Samples:
    """The first 2 GB that are written."""
    server.start()
    samples: Samples = {}
    with admin.topic(server.bootstrap, "bench-first", HEADLINE_PARTITIONS) as topic:
        _produce(server, tools, topic, FIRST_BYTES, samples)
        samples["rss_mb"] = [process.resident_mb(server.pid)]
    return samples


def consume(server: Server, tools: Tools, _effort: Effort) -> Samples:
    """The first 2 GB that are read, after a restart."""
    server.start()
    samples: Samples = {}
    with admin.topic(server.bootstrap, "bench-first", HEADLINE_PARTITIONS) as topic:
        _produce(server, tools, topic, FIRST_BYTES, {})
        server.stop()
        server.start()
        _consume(server, tools, topic, FIRST_BYTES, "consume", samples)
        samples["rss_mb"] = [process.resident_mb(server.pid)]
    return samples


def behind(server: Server, tools: Tools, _effort: Effort) -> Samples:
    """Half a gigabyte written, then read; and once more, when the server has seen that readers come so late."""
    server.start()
    samples: Samples = {}
    for verb in ("first", "again"):
        with admin.topic(server.bootstrap, f"bench-behind-{verb}", HEADLINE_PARTITIONS) as topic:
            _produce(server, tools, topic, BEHIND_BYTES, {})
            _consume(server, tools, topic, BEHIND_BYTES, verb, samples)
    return samples


def _produce(server: Server, tools: Tools, topic: str, byte_count: int, samples: Samples) -> None:
    size = SIZES[SIZE]
    watch = Watch(server)
    load = tools.client.produce(server.bootstrap, topic, size=size, count=byte_count // size)
    stats.add_sample(samples, bulk_sample("produce", load, *watch.stop(load.finished.cpu)))


def _consume(server: Server, tools: Tools, topic: str, byte_count: int, verb: str, samples: Samples) -> None:
    count = byte_count // SIZES[SIZE]
    watch = Watch(server)
    load = tools.client.consume(server.bootstrap, topic, partitions=HEADLINE_PARTITIONS, count=count)
    stats.add_sample(samples, bulk_sample(verb, load, *watch.stop(load.finished.cpu)))


def _figures(verb: str, label: str) -> tuple[Figure, ...]:
    return (
        Figure(f"{verb}_mb_s", label, "MB/s", Better.HIGHER),
        Figure(f"{verb}_cpu_s_gb", f"{label}, server CPU", "s/GB", Better.LOWER),
        Figure(f"{verb}_cpu_system_s_gb", f"{label}, kernel's part", "s/GB", Better.LOWER),
    )


def _measure(name: str, title: str, figures: tuple[Figure, ...], run: Run) -> Measure:
    return Measure(f"cold-process-{name}", title, figures, run, fresh=True)


_RESIDENT = Figure("rss_mb", "memory after that", "MB", Better.LOWER)

COLD_PROCESS_MEASURES: tuple[Measure, ...] = (
    _measure(
        "produce",
        f"the first 2 GB into a new process, {SIZE} records",
        (*_figures("produce", f"produce the first 2 GB, {SIZE}"), _RESIDENT),
        produce,
    ),
    _measure(
        "consume",
        f"the first 2 GB out of a new process, {SIZE} records",
        (*_figures("consume", f"consume the first 2 GB, {SIZE}"), _RESIDENT),
        consume,
    ),
    _measure(
        "behind",
        f"readers 500 MB behind in a new process, {SIZE} records",
        (*_figures("first", "500 MB behind, the first"), *_figures("again", "500 MB behind, the second")),
        behind,
    ),
)
