"""Statistics of topics: rates, backlogs, producers and consumers, and the ledgers and cursors behind them.

The broker counts everything anyway; this module puts it together, as values, for one partition at a time.  Backlogs
are counted in messages.  Sizes of backlogs are estimates from the sizes of ledgers.

A caller that may describe a topic gets its statistics.  The topic's subscriptions show its readers and their addresses.
So the statistics have them only for callers that may describe these subscriptions, too, as in every other list of
subscriptions.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.names import TopicName, parse_partition
from magnetar.broker.compaction.beside import SUBSCRIPTION as COMPACTION
from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.log.model import CompactionFigures
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.rates import Rate, RateBoard
from magnetar.broker.policy.model import Policies
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.admission import Producers
from magnetar.broker.producers.model import AccessMode, ProducerOrigin
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, subscription_resource, topic_resource
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.subscriptions.model import ConsumerSpec, SubscriptionType
from magnetar.broker.subscriptions.positions import position_below, published_ms
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.subscriptions.volatile import NonPersistentSubscription
from magnetar.broker.topics.errors import NotPartitioned
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.ledger.cursor_store import CursorKey
from magnetar.ledger.state import State

_T = TypeVar("_T")
Shows: TypeAlias = Callable[[str], bool]

RANGES_SHOWN_MAX: Final = 1_000  # of a cursor; there may be half a million


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Counts are of messages since the consumer connected; acknowledgements and redeliveries are averages over that
    time, per second.
    """

    spec: ConsumerSpec
    rate: Rate
    bytes_out: int
    messages_out: int
    redelivered_per_s: float
    acked_per_s: float
    permits: int
    unacked_messages: int
    is_blocked: bool
    connected_since_ms: int


@dataclass(frozen=True, slots=True)
class SubscriptionStatistics:
    """`is_stored`: its topic stores messages, so there can be a backlog.  `type` is None if no consumer uses it.
    `earliest_ms` is when the oldest message of the backlog was published, 0 if the caller did not ask for it.
    `delayed_bytes` is the memory of the index of `delayed` messages.
    """

    name: str
    type: SubscriptionType | None
    is_stored: bool
    is_durable: bool
    consumers: Sequence[ConsumerStatistics]
    active_consumer: str | None = None
    backlog: int = 0
    backlog_bytes: int = 0
    earliest_ms: int = 0
    delayed: int = 0
    delayed_bytes: int = 0
    waiting: int = 0
    is_blocked: bool = False
    range_count: int = 0
    expired: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """`origin` is None if the producer did not say where it is."""

    name: str
    mode: AccessMode
    rate: Rate
    connected_since_ms: int
    origin: ProducerOrigin | None


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """Statistics of one partition, since the start, as of `now_ms`.  Transactions are those of both protocols.
    `subscriptions` are those that the caller may see.
    """

    policies: Policies
    rate_in: Rate
    bytes_in: int
    messages_in: int
    storage_bytes: int
    producers: Sequence[ProducerStatistics]
    subscriptions: Sequence[SubscriptionStatistics]
    compaction: CompactionFigures
    open_transactions: int
    committed_transactions: int
    aborted_transactions: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    ledger_id: int
    entry_count: int
    size_bytes: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class CompactedStatistics:
    ledger_id: int
    entry_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CursorStatistics:
    """`position` is (ledger id, entry id) of the last entry below `mark_delete`.  `ranges` are the first acknowledged
    ranges above it: `RANGES_SHOWN_MAX` at most, of `range_count`.
    """

    name: str
    position: tuple[int, int]
    mark_delete: int
    ranges: Sequence[tuple[int, int]]
    range_count: int
    is_open: bool
    is_active: bool
    holds_data: bool
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InternalStatistics:
    """The ledgers and cursors of one partition.  `compacted` is the log that Pulsar's compaction has made."""

    ledgers: Sequence[LedgerStatistics]
    cursors: Sequence[CursorStatistics]
    state: State
    is_terminated: bool
    size_bytes: int
    first_offset: int
    next_offset: int
    compacted: CompactedStatistics | None


class StatisticsCases:
    """See the module's text.  `consumes(group, topic)`: whether a Kafka group has members that consume the topic;
    `expired` counts messages that the broker has acknowledged for their age.
    """

    def __init__(
        self,
        access: AccessControl,
        clock: Clock,
        pulsar_topics: PulsarTopics,
        namespaces: Namespaces,
        rates: RateBoard,
        producers: Producers,
        subscriptions: Subscriptions,
        admin: SubscriptionAdmin,
        consumes: Callable[[str, str], bool],
        expired: Counter[CursorKey],
    ) -> None:
        self._access = access
        self._clock = clock
        self._pulsar_topics = pulsar_topics
        self._namespaces = namespaces
        self._rates = rates
        self._producers = producers
        self._subscriptions = subscriptions
        self._admin = admin
        self._consumes = consumes
        self._expired = expired

    async def topic(self, caller: Caller, topic: str, *, earliest: bool = False) -> TopicStatistics:
        """Statistics of the partition that `topic` names; `earliest` looks for the oldest message of each backlog.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, StorageError
        """
        shows = self._require(caller, topic)
        return await self._topic(self._pulsar_topics.partition(topic), shows, earliest)

    async def partitions(
        self, caller: Caller, topic: TopicName, *, earliest: bool = False
    ) -> Sequence[TopicStatistics]:
        """As `topic`, for each partition of a partitioned topic; raises NotPartitioned if it is not partitioned, or
        does not exist.
        """
        shows = self._require(caller, topic.full)
        found = []
        for one in self._each(topic):
            found.append(await self._topic(one, shows, earliest))
            await asyncio.sleep(0)  # a topic may have thousands
        return found

    async def internal(self, caller: Caller, topic: str) -> InternalStatistics:
        """The ledgers and cursors of the partition that `topic` names.  Raises as `topic`."""
        shows = self._require(caller, topic)
        return await self._internal(self._pulsar_topics.partition(topic), shows)

    async def internal_partitions(self, caller: Caller, topic: TopicName) -> Sequence[InternalStatistics]:
        """As `internal`, of each partition of a partitioned topic.  Raises as `partitions`."""
        shows = self._require(caller, topic.full)
        found = []
        for one in self._each(topic):
            found.append(await self._internal(one, shows))
            await asyncio.sleep(0)  # a topic may have thousands
        return found

    # --- inside ------------------------------------------------------------------------------------------------------

    def _require(self, caller: Caller, topic: str) -> Shows:
        """Whether the caller may see a subscription of the topic, by its name; raises TopicNotAuthorized."""
        full = parse_partition(topic)[0].full
        self._access.require(caller, Operation.DESCRIBE, topic_resource(full))

        def shows(name: str) -> bool:
            return self._access.permits(caller, Operation.DESCRIBE, subscription_resource(full, name))

        return shows

    def _each(self, topic: TopicName) -> Iterable[Partition]:
        found = self._pulsar_topics.find(topic)
        if found is None or not found.is_partitioned:
            raise NotPartitioned(f"Partitioned Topic {topic.full} not found")
        return (found.partition(index) for index in range(found.partition_count))

    async def _topic(self, partition: Partition, shows: Shows, earliest: bool) -> TopicStatistics:
        log = partition.log
        subscriptions = [
            self._volatile(one) for one in self._subscriptions.volatile(partition) if shows(one.name)
        ]
        subscriptions += await self._each_stored(partition, shows, partial(self._stored, earliest=earliest))
        return TopicStatistics(
            policies=self._namespaces.policies_of(partition.topic.name),
            rate_in=self._rates.of(partition),
            bytes_in=log.appended_bytes,
            messages_in=partition.messages_in,
            storage_bytes=log.size_bytes,
            producers=[
                ProducerStatistics(
                    one.name, one.mode, self._rates.of(one), one.connected_since_ms, one.origin
                )
                for one in self._producers.find(partition) or ()
            ],
            subscriptions=subscriptions,
            compaction=partition.compaction,
            open_transactions=partition.transactions.open_count,
            committed_transactions=partition.transactions.committed_total,
            aborted_transactions=partition.transactions.aborted_total,
            now_ms=self._clock.now_ms(),
        )

    async def _each_stored(
        self, partition: Partition, shows: Shows, describe: Callable[[Partition, str], Awaitable[_T]]
    ) -> list[_T]:
        """All stored subscriptions that are shown, without those that are being made, or have just been deleted."""
        found = []
        for name in self._subscriptions.names(partition) if partition.topic.name.persistent else ():
            if shows(name):
                with suppress(SubscriptionNotFound):
                    found.append(await describe(partition, name))
        return found

    async def _stored(self, partition: Partition, name: str, earliest: bool) -> SubscriptionStatistics:
        cursor = self._admin.cursor(partition, name)
        log = partition.log
        backlog = cursor.backlog(log.high_watermark, log.log_start)
        published = 0
        if earliest and backlog:
            entry = await self._admin.oldest(partition, name)
            published = 0 if entry is None else max(0, published_ms(entry))
        open_one = self._subscriptions.find(partition, name)
        full = partition.topic.name.full
        kind = None if open_one is None else open_one.type
        if kind is None and self._consumes(name, full):
            # It gives each partition to one consumer at a time, as a group does.
            kind = SubscriptionType.FAILOVER
        if kind is None and name == COMPACTION:
            kind = SubscriptionType.EXCLUSIVE  # to compaction, as Pulsar shows it
        active = None if open_one is None else open_one.active_consumer
        dispatcher = None if open_one is None else open_one.dispatcher
        return SubscriptionStatistics(
            name=name,
            type=kind,
            is_stored=True,
            is_durable=open_one is None or open_one.is_durable,
            consumers=self._consumers(open_one.consumers if open_one is not None else ()),
            active_consumer=None if active is None else active.spec.name,
            backlog=backlog,
            backlog_bytes=backlog_bytes(log, max(cursor.mark_delete, log.log_start)),
            earliest_ms=published,
            delayed=0 if dispatcher is None else dispatcher.delayed_count,
            delayed_bytes=0 if dispatcher is None else dispatcher.delayed_bytes,
            waiting=0 if dispatcher is None else dispatcher.waiting_count,
            is_blocked=dispatcher is not None and dispatcher.blocked,
            range_count=cursor.range_count,
            expired=self._expired[CursorKey(name, full, partition.index)],
            properties=self._subscriptions.properties(cursor),
        )

    def _volatile(self, subscription: NonPersistentSubscription) -> SubscriptionStatistics:
        return SubscriptionStatistics(
            name=subscription.name,
            type=subscription.type,
            is_stored=False,
            is_durable=False,
            consumers=self._consumers(subscription.consumers),
        )

    def _consumers(self, consumers: Iterable[SubscribedConsumer]) -> Sequence[ConsumerStatistics]:
        return [self._consumer(one) for one in consumers]

    def _consumer(self, member: SubscribedConsumer) -> ConsumerStatistics:
        seconds = max(1.0, (self._clock.now_ms() - member.connected_since_ms) / 1000)
        return ConsumerStatistics(
            spec=member.spec,
            rate=self._rates.of(member),
            bytes_out=member.bytes_out,
            messages_out=member.messages_out,
            redelivered_per_s=member.messages_redelivered / seconds,
            acked_per_s=member.acked_messages / seconds,
            permits=member.state.permits,
            unacked_messages=member.state.unacked_messages,
            is_blocked=member.state.blocked,
            connected_since_ms=member.connected_since_ms,
        )

    async def _internal(self, partition: Partition, shows: Shows) -> InternalStatistics:
        log = partition.log
        ledgers = [
            LedgerStatistics(info.ledger_id, info.entry_count, info.size_bytes, info.created_ms)
            for info in log.ledgers
        ]
        return InternalStatistics(
            ledgers=ledgers,
            cursors=await self._each_stored(partition, shows, self._cursor),
            state=log.state,
            is_terminated=partition.is_terminated,
            size_bytes=log.size_bytes,
            first_offset=log.log_start,
            next_offset=log.high_watermark,
            compacted=_compacted(partition),
        )

    async def _cursor(self, partition: Partition, name: str) -> CursorStatistics:
        cursor = self._admin.cursor(partition, name)
        open_one = self._subscriptions.find(partition, name)
        return CursorStatistics(
            name=name,
            position=await position_below(partition.log, cursor.mark_delete),
            mark_delete=cursor.mark_delete,
            ranges=cursor.first_ranges(RANGES_SHOWN_MAX),
            range_count=cursor.range_count,
            is_open=open_one is not None,
            is_active=open_one is not None and open_one.is_in_use,
            holds_data=cursor.holds_data,
            properties=dict(cursor.properties) | _result_of(partition, name),
        )


def _compacted(partition: Partition) -> CompactedStatistics | None:
    made = partition.log.compacted
    if made is None:
        return None
    return CompactedStatistics(made.ledger_id, made.entry_count, made.size_bytes)


def _result_of(partition: Partition, name: str) -> dict[str, str]:
    """What Pulsar stores with its compaction's cursor."""
    compacted = partition.log.compacted
    return {"CompactedTopicLedger": str(compacted.ledger_id)} if compacted and name == COMPACTION else {}
