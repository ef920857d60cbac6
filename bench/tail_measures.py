"""Readers that follow a topic of many partitions while one record comes at a time: what each delivery costs."""

import statistics

from bench import admin, process
from bench.measures import Effort, Measure, Run, Tools
from bench.servers import HOST, Server
from bench.stats import Better, Figure, Samples
from bench.tails import IN_SESSION, PLAIN, tails

READERS = 30
PARTITIONS = 50
WARM_UP_ROUNDS = 100
ROUNDS = 400


def follow(version: int) -> Run:
    """A record for each round: the server's processor time by delivery, and how long acknowledgements took."""

    def run(server: Server, _tools: Tools, _effort: Effort) -> Samples:
        port = int(server.bootstrap.rpartition(":")[2])
        with (
            admin.topic(server.bootstrap, f"bench-tail-{version}", PARTITIONS) as topic,
            tails(HOST, port, topic, readers=READERS, partitions=PARTITIONS, version=version) as load,
        ):
            load.run(WARM_UP_ROUNDS)
            before = process.cpu_time(server.pid)
            rounds = load.run(ROUNDS)
            cpu = process.cpu_time(server.pid) - before
        return {
            "delivery_cpu_us": [cpu.total / rounds.delivered * 1e6],
            "produce_p50_ms": [statistics.median(rounds.produce_s) * 1e3],
        }

    return run


def _measure(name: str, what: str, version: int) -> Measure:
    title = f"{READERS} readers {what} that follow {PARTITIONS} partitions"
    return Measure(
        name,
        title,
        (
            Figure("delivery_cpu_us", f"{title}, server CPU", "us/record", Better.LOWER, limit=100.0),
            Figure("produce_p50_ms", f"{title}, produce p50", "ms", Better.LOWER, limit=2.0),
        ),
        follow(version),
    )


TAIL_MEASURES: tuple[Measure, ...] = (
    _measure("tail-30x50", "without fetch sessions", PLAIN),
    _measure("tail-30x50-sessions", "with fetch sessions", IN_SESSION),
)
