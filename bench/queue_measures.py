"""A share group (KIP-932) that drains a backlog, beside Apache Kafka's."""

import itertools

from confluent_kafka.admin import ConfigResource

from bench import admin, stats
from bench.measures import HEADLINE_PARTITIONS, SIZES, Effort, Measure, Tools, Watch
from bench.process import RunFailed
from bench.servers import Server
from bench.stats import Better, Figure, Samples

CONSUMERS = 4
SHARE_OF_BULK = 4  # a share group is slower than plain consumers: it takes so many times less than they do
SIZE = SIZES["1KiB"]

_numbers = itertools.count(1)


def share(server: Server, tools: Tools, effort: Effort) -> Samples:
    """Consumers of one group that accept what they get, from the beginning of a topic, joining included."""
    if tools.java is None:
        raise RunFailed("the peers' kafka script is not here, and with it Kafka's ShareConsumerPerformance")
    number = next(_numbers)
    group = f"bench-share-{number}"
    count = effort.bulk_bytes // SHARE_OF_BULK // SIZE
    with admin.topic(server.bootstrap, f"bench-queue-{number}", HEADLINE_PARTITIONS) as topic:
        earliest = {"share.auto.offset.reset": "earliest"}
        admin.configure(server.bootstrap, ConfigResource.Type.GROUP, group, earliest)
        tools.client.produce(server.bootstrap, topic, size=SIZE, count=count)
        watch = Watch(server)
        load = tools.java.share(server.bootstrap, topic, group, size=SIZE, count=count, consumers=CONSUMERS)
        cpu, noise = watch.stop(load.finished.cpu)
    return {
        "share_messages_s": [load.transfer.messages_per_second],
        "share_cpu_s_gb": [stats.per_gb(cpu.total, load.transfer.bytes)],
        "share_client_cpu_s_gb": [stats.per_gb(load.finished.cpu.total, load.transfer.bytes)],
        "share_others_cpu_share": [noise],
    }


QUEUE_MEASURES: tuple[Measure, ...] = (
    Measure(
        "share-1KiB",
        f"{CONSUMERS} share consumers of 1 KiB records, {HEADLINE_PARTITIONS} partitions",
        (
            Figure("share_messages_s", "share group 1 KiB", "msg/s", Better.HIGHER),
            Figure("share_cpu_s_gb", "share group 1 KiB, server CPU", "s/GB", Better.LOWER),
        ),
        share,
    ),
)
