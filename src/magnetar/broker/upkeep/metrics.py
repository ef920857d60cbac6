"""Metrics of the broker, with the names of Pulsar and KoP where these have one.

This module counts nothing: every number exists anyway, and is read when a client asks.  That happens on a thread, so
that ten thousand partitions delay no client.  Each read therefore iterates over copies (copying a dictionary is one
step under the interpreter's lock), and reads single numbers, which may change meanwhile.  Groups' offsets cannot be
read on a thread, because that may decode them: `GroupProgress` collects them on the loop, a few groups at a time,
before each rendering.

A partition appears once it has data, or a client has asked for it since the start; idle topics cost nothing.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

from magnetar.base.errors import EntryCorrupt
from magnetar.base.expiry_time import ExpiryTime
from magnetar.base.metrics import CHILDREN_MAX, Labels, Metrics
from magnetar.base.names import TopicName
from magnetar.base.upkeep import Upkeep
from magnetar.broker.compaction.beside import CompactorBeside
from magnetar.broker.compaction.compactor import Compactor
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.rates import Rate, RateBoard
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.admin import partition_name
from magnetar.broker.subscriptions.dispatch.model import Dispatcher
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.upkeep.compaction_pass import CompactionPass
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.entry_cache import EntryCache

_GROUPS_AT_ONCE: Final = 100  # then the event loop serves clients before the next ones
_PARTITION: Final = ("namespace", "topic")
_SUBSCRIPTION: Final = ("namespace", "topic", "subscription")


class Measured(Protocol):
    """The parts of the broker from which metrics are read."""

    topics: TopicRegistry
    kafka_topics: KafkaTopics
    producers: Producers
    subscriptions: Subscriptions
    groups: GroupCoordinator
    cursors: CursorStore
    rates: RateBoard
    expiry_time: ExpiryTime
    upkeep: Upkeep
    cache: EntryCache
    compactor: Compactor
    compaction: CompactionPass
    beside: CompactorBeside
    pulsar_transactions: PulsarTransactions


def declare_broker_metrics(metrics: Metrics, broker: Measured) -> None:
    """Declare metrics of the topics, logs, cache and producers of `broker`."""

    def topics() -> Iterator[tuple[Labels, float]]:
        counts: dict[str, int] = {}
        for topic in broker.topics:
            counts[topic.name.namespace_name] = counts.get(topic.name.namespace_name, 0) + 1
        return (((namespace,), count) for namespace, count in counts.items())

    def per_partition(
        value: Callable[[Partition], float],
    ) -> Callable[[], Iterator[tuple[Labels, float]]]:
        def read() -> Iterator[tuple[Labels, float]]:
            for topic in broker.topics:
                for partition in topic.open_partitions:
                    yield (topic.name.namespace_name, partition_name(partition)), value(partition)

        return read

    def one(value: Callable[[], float]) -> Callable[[], list[tuple[Labels, float]]]:
        return lambda: [((), value())]

    gauge, total = metrics.gauge, metrics.total
    gauge("pulsar_topics_count", "Topics of a namespace.", topics, ("namespace",))
    gauge(
        "magnetar_partitions",
        "Partitions of all topics.",
        one(lambda: sum(topic.partition_count for topic in broker.topics)),
    )
    gauge(
        "pulsar_storage_size",
        "Stored bytes of a partition's log.",
        per_partition(lambda partition: partition.log.size_bytes),
        _PARTITION,
    )
    gauge(
        "magnetar_log_start_offset",
        "The first readable offset of a partition.",
        per_partition(lambda partition: partition.log.log_start),
        _PARTITION,
    )
    gauge(
        "magnetar_log_end_offset",
        "The offset that the next readable record of a partition will have: its high watermark.",
        per_partition(lambda partition: partition.log.high_watermark),
        _PARTITION,
    )
    gauge(
        "magnetar_partition_producers",
        "Idempotent producers that a partition remembers.",
        per_partition(lambda partition: len(partition.producers)),
        _PARTITION,
    )
    gauge(
        "pulsar_producers_count",
        "Connected producers of Pulsar clients.",
        per_partition(lambda partition: len(broker.producers.find(partition) or ())),
        _PARTITION,
    )
    gauge(
        "pulsar_consumers_count",
        "Connected consumers of Pulsar clients.",
        per_partition(
            lambda partition: sum(len(one.consumers) for one in broker.subscriptions.of(partition))
        ),
        _PARTITION,
    )
    gauge(
        "pulsar_rate_in",
        "Messages per second that came in, of both protocols.",
        per_partition(lambda partition: broker.rates.of(partition).messages),
        _PARTITION,
    )
    gauge(
        "pulsar_throughput_in",
        "Stored bytes per second that came in, of both protocols.",
        per_partition(lambda partition: broker.rates.of(partition).size_bytes),
        _PARTITION,
    )
    gauge(
        "pulsar_rate_out",
        "Messages per second that went out to Pulsar consumers.",
        per_partition(lambda partition: sum(rate.messages for rate in _rates_out(broker, partition))),
        _PARTITION,
    )
    gauge(
        "pulsar_throughput_out",
        "Bytes per second that went out to Pulsar consumers.",
        per_partition(lambda partition: sum(rate.size_bytes for rate in _rates_out(broker, partition))),
        _PARTITION,
    )
    total(
        "pulsar_in_messages_total",
        "Messages that came in since the start.",
        per_partition(lambda partition: partition.log.next_offset - partition.log.opened_at),
        _PARTITION,
    )
    total(
        "pulsar_in_bytes_total",
        "Stored bytes that came in since the start.",
        per_partition(lambda partition: partition.log.appended_bytes),
        _PARTITION,
    )
    gauge(
        "pulsar_subscription_delayed",
        "Messages of a subscription whose time has not come; not shown where there are none.",
        _per_delaying(broker, lambda dispatcher: dispatcher.delayed_count),
        _SUBSCRIPTION,
    )
    gauge(
        "pulsar_delayed_message_index_size_bytes",
        "Memory of the index of a subscription's delayed messages.",
        _per_delaying(broker, lambda dispatcher: dispatcher.delayed_bytes),
        _SUBSCRIPTION,
    )
    gauge(
        "magnetar_clock_held_seconds",
        "How far the clock is ahead of the time by which things expire.",
        one(lambda: broker.expiry_time.held_ms / 1000),
    )
    total(
        "magnetar_upkeep_failures_total",
        "Failed runs of periodic work.",
        lambda: [((job.name,), job.failures_total) for job in broker.upkeep.jobs],
        ("job",),
    )
    gauge("pulsar_ml_cache_used_size", "Bytes in the entry cache.", one(lambda: broker.cache.bytes_used))
    gauge("magnetar_cache_max_bytes", "The entry cache's limit.", one(lambda: broker.cache.bytes_max))
    total(
        "magnetar_cache_evictions_total",
        "Entries that left the entry cache to make room.",
        one(lambda: broker.cache.eviction_count),
    )


def _per_delaying(
    broker: Measured, value: Callable[[Dispatcher], float]
) -> Callable[[], Iterator[tuple[Labels, float]]]:
    """A value of each subscription that delays messages."""

    def read() -> Iterator[tuple[Labels, float]]:
        for topic in broker.topics:
            for partition in topic.open_partitions:
                for one in broker.subscriptions.of(partition):
                    dispatcher = one.dispatcher
                    if dispatcher is not None and dispatcher.delayed_count:
                        labels = (topic.name.namespace_name, partition_name(partition), one.name)
                        yield labels, value(dispatcher)

    return read


def _rates_out(broker: Measured, partition: Partition) -> Iterator[Rate]:
    for subscription in broker.subscriptions.of(partition):
        for consumer in subscription.consumers:
            yield broker.rates.of(consumer)


class _Row(NamedTuple):
    group: str
    topic: TopicName
    partition: int
    pulsar_name: str
    committed: int
    lag: int
    backlog: int


class GroupProgress:
    """How far consumer groups had got at the last `refresh`."""

    def __init__(self, metrics: Metrics, broker: Measured) -> None:
        self._broker = broker
        self._states: dict[str, int] = {}
        self._rows: list[_Row] = []
        self._left_out = 0

        def per_offset(value: Callable[[_Row], int]) -> Callable[[], Iterator[tuple[Labels, float]]]:
            return lambda: (
                ((row.group, broker.kafka_topics.shown(row.topic), str(row.partition)), value(row))
                for row in self._rows
            )

        labels = ("group", "topic", "partition")
        metrics.gauge(
            "magnetar_groups",
            "Consumer groups, by state.",
            lambda: [((state,), count) for state, count in self._states.items()],
            ("state",),
        )
        metrics.gauge(
            "kafka_consumergroup_current_offset",
            "The offset that a group has committed.",
            per_offset(lambda row: row.committed),
            labels,
        )
        metrics.gauge(
            "kafka_consumergroup_lag",
            "Readable records that a group has not committed.",
            per_offset(lambda row: row.lag),
            labels,
        )
        metrics.gauge(
            "pulsar_subscription_back_log",
            "Messages that a subscription, or a group, has not acknowledged: without those acknowledged one by one.",
            lambda: (
                ((row.topic.namespace_name, row.pulsar_name, row.group), row.backlog) for row in self._rows
            ),
            _SUBSCRIPTION,
        )
        metrics.gauge(
            "magnetar_group_offsets_not_shown",
            f"Committed offsets beyond the first {CHILDREN_MAX}, which are not shown one by one.",
            lambda: [((), self._left_out)],
        )

    async def refresh(self) -> None:
        """Read all groups; a group that cannot be read is left out."""
        broker = self._broker
        self._states = dict(Counter(group.state.value for group in broker.groups.listed()))
        topics = {topic.name.full: topic for topic in broker.topics}
        rows: list[_Row] = []
        left_out = 0
        for count, group in enumerate(broker.cursors.subscriptions()):
            if count % _GROUPS_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                cursors = broker.cursors.subscription(group)
            except EntryCorrupt:
                continue  # the code that decoded the offsets has logged it
            for topic_name, partitions in cursors.items():
                topic = topics.get(topic_name)
                if topic is None:
                    continue
                if len(rows) + len(partitions) > CHILDREN_MAX:
                    left_out += len(partitions)
                    continue
                for index, cursor in partitions.items():
                    lag, backlog = _behind(topic, index, cursor)
                    name = topic.name.partition_name(index) if topic.is_partitioned else topic.name.full
                    rows.append(_Row(group, topic.name, index, name, cursor.mark_delete, lag, backlog))
        self._rows, self._left_out = rows, left_out


def _behind(topic: Topic, index: int, cursor: Cursor) -> tuple[int, int]:
    """The number of messages from the cursor's position on, and how many of them are not acknowledged."""
    partition = topic.opened(index)
    if partition is None:
        return 0, 0  # no client has written to it
    log = partition.log
    # Messages that retention has removed do not count.
    lag = max(0, log.high_watermark - max(log.log_start, cursor.mark_delete))
    return lag, cursor.backlog(log.high_watermark, log.log_start)
