"""A small client beside one that produces as fast as it can: what a quota gives the small one.

The same three times on either server, one after the other: the small client alone, beside the flood, and beside the
flood under a `producer_byte_rate` that Kafka's own tool sets for its client id.  The flood shares the machine with the
server and the small client, so that a held flood gives processors back as well.
"""

from bench import admin, process
from bench.measures import HEADLINE_PARTITIONS, LATENCY_SIZE, Effort, Measure, Tools
from bench.process import RunFailed
from bench.servers import Server
from bench.stats import Better, Figure, Samples

VICTIM_RATE = 200  # messages a second
WARM_UP_SECONDS = 5
FLOOD_SIZE = 1024
FLOOD_CLIENT = "flood"
FLOOD_BYTES_PER_SECOND = 5_000_000  # under its quota


def fairness(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Acknowledgement times of the small client; `*_rate_s` are its messages a second."""
    if tools.java is None:
        raise RunFailed("the peers' kafka script is not here, and with it Kafka's tools")
    java = tools.java
    found: dict[str, float] = {}
    with (
        admin.topic(server.bootstrap, "bench-victim", HEADLINE_PARTITIONS) as topic,
        admin.topic(server.bootstrap, "bench-flood", HEADLINE_PARTITIONS) as flooded,
    ):

        def measure(name: str) -> None:
            times = java.run(
                server.bootstrap,
                topic,
                size=LATENCY_SIZE,
                rate=VICTIM_RATE,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=effort.latency_seconds,
            )
            found[f"{name}_p99_ms"] = times.p99_ms
            found[f"{name}_p50_ms"] = times.p50_ms
            found[f"{name}_rate_s"] = times.records_per_second

        measure("alone")
        settings = (f"client.id={FLOOD_CLIENT}",)
        with tools.client.flood(server.bootstrap, flooded, size=FLOOD_SIZE, settings=settings):
            before = process.cpu_time(server.pid)
            measure("flooded")
            found["flooded_cpu_s"] = (process.cpu_time(server.pid) - before).total
            java.set_client_quota(server.bootstrap, FLOOD_CLIENT, FLOOD_BYTES_PER_SECOND)
            try:
                measure("held")
            finally:
                java.set_client_quota(server.bootstrap, FLOOD_CLIENT, None)
    return {name: [value] for name, value in found.items()}


FAIRNESS_MEASURES: tuple[Measure, ...] = (
    Measure(
        "fairness",
        f"{VICTIM_RATE} msg/s of 1 KiB beside a flood",
        (
            Figure("alone_p99_ms", "p99 alone", "ms", Better.LOWER),
            Figure("flooded_p99_ms", "p99 beside a flood", "ms", Better.LOWER),
            Figure("held_p99_ms", "p99 beside a flood with a quota", "ms", Better.LOWER),
        ),
        fairness,
        repeated=False,
        calm=True,
    ),
)
