"""A replicator to Apache Kafka beside MirrorMaker 2: each copies a backlog of Magnetar's to the same real Kafka.

They do it one after the other, in each run in the other order than in the one before, on the two processors that source
and target have, too.  CPU is that of the source's server and of all processes that copy: a replicator's are the worker,
its JVM and its Python processes, MirrorMaker's is one JVM.  The target's is not in it: it has the same work from both.
"""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import admin, process, pulsar_server, stats
from bench.arrivals import Arrivals, Costs, arrived_in, watch
from bench.measures import HEADLINE_PARTITIONS, SIZES, Effort, Measure, Tools
from bench.mirror import MirrorMaker
from bench.process import RunFailed
from bench.servers import Kafka, Server
from bench.stats import Better, Figure, Samples

TABLE = "replicator"  # of the report, for what is compared with MirrorMaker 2
SIZE = SIZES["1KiB"]
MB_S_MIN = 50.0
_PATH = "namespaces/public/default/replicator/Kafka/bench"

_numbers = itertools.count(1)


def replicate(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Both copy a backlog of the bulk size."""
    if tools.java is None or tools.mirror is None:
        raise RunFailed("the peers' kafka script is not here, and with it Kafka and MirrorMaker 2")
    server.start()
    number = next(_numbers)
    beside = server.folder.with_name(f"{server.folder.name}-beside")
    target = Kafka(beside / "target", tools.java.script)
    count = effort.bulk_bytes // SIZE
    try:
        target.start()
        turns: list[tuple[str, Callable[[str], Arrivals]]] = [
            ("replicator", lambda topic: _replicator(server, target, tools, topic, count)),
            ("mirror", lambda topic: _mirror(server, target, tools, topic, count, beside)),
        ]
        samples: Samples = {}
        for name, copy in turns if number % 2 else reversed(turns):
            stats.add_sample(samples, sample(name, copy(f"bench-{name}-{number}")))
    finally:
        target.discard()
    return samples


def _replicator(server: Server, target: Server, tools: Tools, topic: str, count: int) -> Arrivals:
    """It is configured before there is the topic, and so begins with the first record."""
    where = pulsar_server.addresses(server)
    copy = f"{topic}-copy"
    policies = {
        "replicationProperties": {"bootstrap.servers": target.bootstrap},
        "topicNameMapping": {topic: copy},
    }
    with admin.topic(target.bootstrap, copy, HEADLINE_PARTITIONS):
        pulsar_server.request(where, "POST", _PATH, {"replicatorPolicies": policies})
        try:
            with admin.topic(server.bootstrap, topic, HEADLINE_PARTITIONS):
                tools.client.produce(server.bootstrap, topic, size=SIZE, count=count)
                arrived = arrived_in(target.bootstrap, copy, HEADLINE_PARTITIONS)
                return watch(
                    arrived, count, _costs(target, lambda: process.tree_cpu(server.pid)), server.alive
                )
        finally:
            pulsar_server.request(where, "DELETE", _PATH)


def _mirror(server: Server, target: Server, tools: Tools, topic: str, count: int, folder: Path) -> Arrivals:
    mirror = tools.mirror
    assert isinstance(mirror, MirrorMaker)
    with (
        admin.topic(server.bootstrap, topic, HEADLINE_PARTITIONS),
        admin.topic(target.bootstrap, topic, HEADLINE_PARTITIONS),
    ):
        tools.client.produce(server.bootstrap, topic, size=SIZE, count=count)
        with mirror.running(
            server.bootstrap, target.bootstrap, topic, HEADLINE_PARTITIONS, folder
        ) as running:
            arrived = arrived_in(target.bootstrap, topic, HEADLINE_PARTITIONS)
            spent = _costs(target, lambda: process.cpu_time(server.pid).total + process.tree_cpu(running.pid))
            return watch(arrived, count, spent, lambda: running.poll() is None)


def _costs(target: Server, copying: Callable[[], float]) -> Costs:
    def costs() -> Mapping[str, float]:
        return {
            "copying": copying(),
            "target": process.cpu_time(target.pid).total,
            "busy": process.machine_busy(),
        }

    return costs


def sample(name: str, arrivals: Arrivals) -> dict[str, float]:
    """The fields of one copy, whose names begin with `name`."""
    byte_count = arrivals.records * SIZE
    copying, target, busy = (arrivals.spent[name] for name in ("copying", "target", "busy"))
    return {
        f"{name}_mb_s": byte_count / stats.MB / arrivals.seconds,
        f"{name}_mb_cpu_s": byte_count / stats.MB / copying,
        f"{name}_target_cpu_s_gb": stats.per_gb(target, byte_count),
        f"{name}_others_cpu_share": process.share_of_machine(busy - copying - target, arrivals.seconds),
    }


REPLICATOR_MEASURES: tuple[Measure, ...] = (
    Measure(
        "replicator-kafka",
        f"a backlog of 1 KiB records to Apache Kafka, {HEADLINE_PARTITIONS} partitions",
        (
            Figure(
                "replicator_mb_s",
                "replicate 1KiB to Kafka",
                "MB/s",
                Better.HIGHER,
                limit=MB_S_MIN,
                against="mirror_mb_s",
            ),
            Figure(
                "replicator_mb_cpu_s",
                "replicate 1KiB to Kafka, by CPU",
                "MB/CPU s",
                Better.HIGHER,
                1.5,
                against="mirror_mb_cpu_s",
            ),
        ),
        replicate,
        fresh=True,
        peer="",
        table=TABLE,
    ),
)
