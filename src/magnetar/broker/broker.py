"""The broker: what all protocols share, put together, its start and its stop.

Protocol handlers find everything here: topics, groups, transactions, nodes, producer ids.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from magnetar.base import expiry_time
from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, MetadataError, MetadataLost
from magnetar.base.expiry_time import ExpiryTime
from magnetar.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, InvalidTopicName, TopicName
from magnetar.base.table_roots import TableRoots
from magnetar.base.upkeep import Upkeep
from magnetar.broker.cluster.nodes import Nodes
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.groups.catalogue import RegistryCatalogue
from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.history.segments import SegmentCatalogue
from magnetar.broker.history.stored_records import StoredRecords
from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.rates import Count, RateBoard
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.broker.producers.admission import Producers
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.errors import SubscriptionBusy, SubscriptionNotFound
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.subscriptions.volatile import NonPersistentPartition, make_partition
from magnetar.broker.topics.internal import CONSUMER_OFFSETS, TRANSACTION_STATE, InternalTopics
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.coordinator import TransactionCoordinator
from magnetar.broker.transactions.registry import TransactionRegistry
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.broker.upkeep.health import Health, metadata_probe
from magnetar.broker.upkeep.housekeeping import Housekeeping
from magnetar.broker.upkeep.retention import trim_limits
from magnetar.broker.upkeep.snapshots import ProducerSnapshots
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.entry_cache import EntryCache
from magnetar.ledger.entry_format import decode_entry
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import MetadataStore
from magnetar.storage.store import LedgerStore

log = logging.getLogger(__name__)

_LOOK_AT_CLOCK_S: Final = 10.0
_STORE_CLOCK_S: Final = 600.0  # so seldom, as it is a synced write for nothing else
DEFAULT_NAMESPACE_NAME: Final = f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"
_KAFKA_TOPICS_MAX: Final = 100_000
_CONVERTED_SHARE: Final = 8  # of the entry cache's size, for what is kept in each protocol's form
_TOPICS_AT_ONCE: Final = 200  # between two of these the event loop serves its clients
_STEP: Final = 256  # partitions that are looked at before others have their turn


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What the broker's rules depend on.  Times in milliseconds, sizes in bytes."""

    tenant: str = "public"
    namespace: str = "default"
    cluster_id: str = "magnetar"
    auto_create_topics: bool = True
    delete_topics: bool = True
    partition_count_default: int = 1
    replication_factor_default: int = 1
    entry_cache_bytes: int = 1 << 28
    pulsar_message_bytes_max: int = 5 << 20
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    topic_defaults: Mapping[str, str] = field(default_factory=dict)  # broker keys that were set, as text
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    data_dir: str = ""  # as clients are shown it
    table_roots: TableRoots = field(default_factory=TableRoots)  # where tables of pipelines may lie
    given: Mapping[str, str] = field(default_factory=dict)  # all server keys that were set, as text


class Broker:
    """See the module's text.  Made by `start`."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: LedgerStore,
        metadata: MetadataStore,
        clock: Clock,
        nodes: Nodes,
    ) -> None:
        self.settings = settings
        self.store = store
        self.metadata = metadata
        self.clock = clock
        self.nodes = nodes
        self.upkeep = Upkeep(clock)
        self.expiry_time = ExpiryTime(clock)
        self.health = Health(clock)
        self.health.register("tasks", lambda: self.upkeep.problem)
        self.health.probe("metadata_write", "A write of metadata", metadata_probe(metadata))
        self.health.note("topics", lambda: self.topics.problem)
        self.health.note("transactions", lambda: self.snapshots.problem)
        self.health.note("clock", lambda: self.expiry_time.problem)
        self.cache = EntryCache(settings.entry_cache_bytes)
        self.producer_ids = ProducerIds(metadata)
        self.producers = Producers(metadata)
        self._environment = LedgerEnvironment(store, metadata, self.cache, clock, decode_entry)
        self.namespaces = Namespaces(metadata, clock)
        transactions = TransactionRegistry()
        self.topics = TopicRegistry(
            self._environment,
            nodes,
            TopicDefaults(settings.topic_defaults),
            settings.partition_count_default,
            settings.replication_factor_default,
            make_partition=make_partition,
            ensure_namespaces=self.namespaces.ensure,
            deduplicates=self._deduplicates,
            is_in_transaction=transactions.is_in_transaction,
            when_terminated=self._terminated,
        )
        self.snapshots = ProducerSnapshots(self.topics, metadata, clock, self.upkeep)
        self.schemas = SchemaRegistry(metadata, clock, self.namespaces.policies_of)
        self.pulsar_topics = PulsarTopics(
            self.topics, self.namespaces, self.delete_topic, self.connected_clients
        )
        commits = self._commits = SharedCommits(metadata)
        self.cursors = CursorStore(metadata, commits, self.topics.identity)
        self.groups = GroupCoordinator(
            clock,
            metadata,
            self.cursors,
            commits,
            RegistryCatalogue(self.topics),
            settings.groups,
            canonical_topic=self._full_name_or_itself,
            upkeep=self.upkeep,
            expiry_now_ms=self.expiry_time.now_ms,
        )
        self.transactions = TransactionCoordinator(
            clock,
            metadata,
            commits,
            self.producer_ids,
            self.cursors,
            self.groups.offsets,
            self._partition_or_none,
            transactions,
            settings.transactions,
            self.upkeep,
            self.expiry_time.now_ms,
        )
        self.opener = Opener()
        self.interop = Interop(
            settings.entry_cache_bytes // _CONVERTED_SHARE, settings.pulsar_message_bytes_max, self.opener
        )
        self.subscriptions = Subscriptions(
            clock,
            self.cursors,
            self.interop.pulsar_form,
            self.groups.consumes,
            self.namespaces.policies_of,
            self.upkeep,
        )
        self.subscription_admin = SubscriptionAdmin(self.cursors, self.subscriptions, self.groups.consumes)
        self.pipelines = Pipelines(metadata, clock, self.cursors, settings.table_roots)
        self.time_lookups = TimeLookups(clock, self.interop, self.opener)
        self.segments = SegmentCatalogue(store, self.kafka_topic, self.kafka_name, self.time_lookups)
        self.stored_records = StoredRecords(clock, self.interop)
        self.housekeeping = Housekeeping(
            clock,
            self.upkeep,
            self.expiry_time,
            self.topics,
            self.namespaces,
            self.producers,
            self.subscriptions,
            self.subscription_admin,
            self.cursors,
            self.connected_clients,
            self.delete_topic,
        )
        self.rates = RateBoard(clock, self.upkeep, self._counts)
        self.internal_topics = InternalTopics(
            self.topics,
            self.topic_name,
            settings.cluster_id,
            {
                CONSUMER_OFFSETS: lambda: self.groups.has_groups,
                TRANSACTION_STATE: lambda: self.transactions.has_transactions,
            },
        )
        self._kafka_topics: dict[str, Topic] = {}  # by the names that clients use for them
        self._clock_stored_s = float("-inf")

    async def start(self) -> None:
        """Load what is stored; partitions with data are ready, and idempotent producers known, when this returns."""
        stored = await self.metadata.get(expiry_time.PATH)
        if stored is not None:
            self.expiry_time.restore(stored.value)
        await self._environment.load()
        await self.topics.load()
        await self.namespaces.load(
            {DEFAULT_NAMESPACE_NAME, f"{self.settings.tenant}/{self.settings.namespace}"},
            [topic.name for topic in self.topics],
        )
        self.namespaces.on_change.append(self._policies_changed)
        self._apply_deduplication(self.topics)
        await self.schemas.load()
        await self.topics.go_on_deleting(await self.cursors.load())
        await self.groups.start()
        await self.pipelines.load()
        await self.snapshots.recover()
        await self.transactions.load()  # after the partitions know who has a transaction open in them
        self.rates.start()
        self.housekeeping.start()
        self.subscriptions.start()
        self.upkeep.every(_LOOK_AT_CLOCK_S, "the time", self._look_at_clock)
        self.snapshots.start()
        self.upkeep.every(self.settings.retention_check_interval_ms / 1000, "retention", self.apply_retention)

    async def _look_at_clock(self) -> None:
        """Notice a jump of the clock soon, and store now and then how far things have expired."""
        self.expiry_time.now_ms()
        now_s = self.clock.monotonic()
        if now_s - self._clock_stored_s >= _STORE_CLOCK_S:
            self._clock_stored_s = now_s
            await self._store_clock()

    async def _store_clock(self) -> None:
        try:
            await self.metadata.put(expiry_time.PATH, self.expiry_time.encode())
        except MetadataError as error:
            log.warning("the time is not stored: %s", error)

    async def stop(self) -> None:
        """Finish what is queued and leave everything on disk; the stores stay open for whoever made them to close."""
        await self.health.close()
        await self.upkeep.stop()
        await self.transactions.close()
        await self.subscriptions.close()
        self.interop.close()
        self.opener.close()
        await self.groups.close()
        for topic in self.topics:
            for partition in topic.open_partitions:
                partition.close()
        self.topics.deleted.close()
        self._environment.tombstones.close()
        while self._environment.tasks:
            await asyncio.wait(set(self._environment.tasks))
        await self.snapshots.store_changed()
        self.expiry_time.now_ms()
        await self._store_clock()

    # --- topics ------------------------------------------------------------------------------------------------------

    def topic_name(self, kafka_name: str) -> TopicName:
        """The topic that a Kafka client means; InvalidTopicName (a BrokerError) when the name cannot be one."""
        return TopicName.parse(kafka_name, self.settings.tenant, self.settings.namespace)

    def kafka_topic(self, kafka_name: str) -> Topic:
        """The topic that a Kafka client means, found by one look-up when it was found before.

        Raises:
            InvalidTopicName, UnknownTopic
        """
        topic = self._kafka_topics.get(kafka_name)
        if topic is None or topic.is_deleted:
            name = self.topic_name(kafka_name)
            topic = self.topics.find(name) or self.internal_topics.find(name)
            if topic is None:
                raise UnknownTopic(f"there is no topic {name}")
            if topic.is_internal:
                return topic  # not kept: a topic of that name may still be made
            if len(self._kafka_topics) >= _KAFKA_TOPICS_MAX:
                self._kafka_topics.clear()
            self._kafka_topics[kafka_name] = topic
        return topic

    def kafka_name(self, name: TopicName) -> str:
        """What a Kafka client is shown."""
        return name.kafka_name(self.settings.tenant, self.settings.namespace)

    def _partition_or_none(self, full_name: str, index: int) -> Partition | None:
        topic = self.topics.find(TopicName.parse(full_name))
        return topic.partition(index) if topic is not None and index < topic.partition_count else None

    def _full_name_or_itself(self, kafka_name: str) -> str:
        """For names in what a client tells its group, which need not be names of topics."""
        try:
            return self.topic_name(kafka_name).full
        except InvalidTopicName:
            return kafka_name

    async def delete_topic(self, topic: Topic) -> None:
        """Delete a topic with everything that belongs to it: in one step, and for good when this returns.

        Its name is free then, and what it has left is removed in the background (`deleted_topics`).  While it is being
        deleted nobody finds it, and whoever makes another one of the name waits.

        Raises:
            InternalTopic: it is not to be deleted.
            UnknownTopic: it is gone already.
            MetadataError: it is there as before (MetadataLost: until the next start, nobody knows).
        """
        topic.check_changeable()
        # The request may be given up; what has begun goes on.
        await asyncio.shield(self._environment.begin(f"delete {topic.name}", self._delete_topic(topic)))

    async def _delete_topic(self, topic: Topic) -> None:
        await self._send_clients_away(topic)  # with their positions stored, should the deletion fail
        async with self.topics.changing(topic):
            operations = self.topics.begin_deletion(topic)
            operations += [*self.namespaces.deletion_of(topic.name), *self.schemas.deletion_of(topic.name)]
            gone: list[Iterator[str]] = []
            try:
                # With everybody who writes cursors, so that what they began before comes before.
                await self._commits.submit(operations, lambda: gone.append(self._forget_topic(topic)))
            except MetadataLost:
                raise
            except BaseException:
                self.topics.undo_deletion(topic)
                raise
        await self._send_clients_away(topic)  # whoever came in between
        self.producers.forget(topic)
        for number, partition in enumerate(topic.open_partitions):
            partition.close()  # whoever waits for one is woken
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)
        self.topics.deleted.erase(topic.topic_id, topic.logs, gone[0])

    def _forget_topic(self, topic: Topic) -> Iterator[str]:
        """The topic's deletion is durable: memory says so, before anybody can make another one of the name.

        What is returned are the paths of its cursors.
        """
        self.namespaces.forget_topic(topic.name)
        self.schemas.forget(topic.name)
        for name in [name for name, one in self._kafka_topics.items() if one is topic]:
            del self._kafka_topics[name]
        paths = self.cursors.forget_topic(topic.name.full, topic.topic_id.hex())
        self.topics.end_deletion(topic)
        return paths

    async def _send_clients_away(self, topic: Topic) -> None:
        for number, partition in enumerate(topic.open_partitions):
            self.producers.close(partition)
            await self.subscriptions.close_partition(partition)
            if number % _STEP == _STEP - 1:
                await asyncio.sleep(0)

    def _terminated(self, partition: Partition) -> None:
        """What was appended is durable, and its producers have their receipts: they come back and are refused."""
        self.subscriptions.terminated(partition)
        self.producers.close(partition)

    async def unload(self, partition: Partition) -> None:
        """Send a partition's Pulsar clients away, positions stored; they come back."""
        self.producers.close(partition)
        await self.subscriptions.close_partition(partition)

    async def truncate(self, partition: Partition) -> None:
        """Remove every message of a partition, acknowledged or not."""
        end = partition.log.high_watermark
        for name in self.subscriptions.names(partition):
            with suppress(
                SubscriptionNotFound, SubscriptionBusy
            ):  # a Kafka group in use follows the log's start
                await self.subscription_admin.skip_to(partition, name, end)
        await partition.log.trim(log_start=end)

    def _counts(self) -> Iterator[Count]:
        """What the rates are made from."""
        for topic in self.topics:
            for partition in topic.open_partitions:
                log = partition.log
                messages = log.next_offset - log.opened_at
                consumers: list[Iterable[SubscribedConsumer]]
                consumers = [one.consumers for one in self.subscriptions.of(partition)]
                if isinstance(partition, NonPersistentPartition):
                    messages = partition.messages_in
                    consumers += [one.consumers for one in partition.subscriptions.values()]
                yield Count(partition, messages, log.appended_bytes)
                for producer in self.producers.find(partition) or ():
                    yield Count(producer, producer.messages_in, producer.bytes_in)
                for consumer in chain.from_iterable(consumers):
                    yield Count(consumer, consumer.messages_out, consumer.bytes_out)

    def connected_clients(self, topic: Topic) -> int:
        """Producers and consumers of Pulsar, and groups of Kafka with members, that use a topic."""
        count = 0
        for partition in topic.open_partitions:
            count += len(self.producers.find(partition) or ())
            count += sum(len(one.consumers) for one in self.subscriptions.of(partition))
            if isinstance(partition, NonPersistentPartition):
                count += sum(len(one.consumers) for one in partition.subscriptions.values())
        full = topic.name.full
        return count + sum(self.groups.consumes(name, full) for name in self.cursors.subscriptions_of(full))

    def _policies_changed(self, namespace: str, name: TopicName | None) -> None:
        topic = None if name is None else self.topics.find(name)
        if name is None:
            self._apply_deduplication(one for one in self.topics if one.name.namespace_name == namespace)
        elif topic is not None:
            self._apply_deduplication([topic])

    def _deduplicates(self, name: TopicName) -> bool:
        return self.namespaces.policies_of(name).deduplication

    def _apply_deduplication(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            on = self._deduplicates(topic.name)
            for partition in topic.open_partitions:
                partition.deduplicate(on)

    # --- retention ---------------------------------------------------------------------------------------------------

    async def apply_retention(self) -> None:
        """One pass over all partitions: roll what is old, drop what nobody keeps, forget idle producers."""
        unforeseen: Exception | None = None
        for count, topic in enumerate(self.topics):
            if count % _TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
            for partition in topic.open_partitions:
                try:
                    await self._retain(topic, partition)
                except BrokerError as error:
                    log.warning("retention of %s waits: %s", partition.log.name, error)
                except Exception as error:  # noqa: BLE001  the other partitions' disk space must not wait for it
                    unforeseen = unforeseen or error
        if unforeseen is not None:
            raise unforeseen

    async def _retain(self, topic: Topic, partition: Partition) -> None:
        now_ms = self.expiry_time.now_ms()
        partition.log.roll_if_old()
        partition.producers.expire(now_ms - self.settings.producer_id_expiration_ms)
        if partition.deduplication is not None:
            connected = {producer.name for producer in self.producers.find(partition) or ()}
            partition.deduplication.expire(now_ms, connected)
        policy = self.namespaces.policies_of(topic.name).retention
        held_from = self.cursors.held_from(topic.name.full, partition.index)
        limits = trim_limits(topic.config, topic.overrides, policy, held_from)
        if limits is not None:
            await partition.log.trim(None, *limits, now_ms=now_ms)
        partition.forget_deleted()
