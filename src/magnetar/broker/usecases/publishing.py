"""Publishing: to the topics of Kafka's requests, and by the producers that Pulsar's clients open."""

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.names import parse_partition
from magnetar.broker.errors import InvalidTxnState, NotLeader, PolicyViolation, TopicLinked, TopicTerminated
from magnetar.broker.log.batch_check import check_keys
from magnetar.broker.log.errors import ProducersNotKnown
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.pulsar_transactions import transaction_of
from magnetar.broker.policy.model import Policies
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.producers.admission import PartitionProducers, Producers
from magnetar.broker.producers.errors import EncryptionRequired, ProducerFenced, TooManyProducers
from magnetar.broker.producers.model import ProducerSpec
from magnetar.broker.producers.producer import Producer, ProducerPort
from magnetar.broker.schemas.model import Schema
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    Caller,
    Operation,
    subscription_resource,
    topic_resource,
    transactional_id_resource,
)
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.pulsar import PulsarTopics, partition_index
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.upkeep.deduplication_learner import DeduplicationLearner
from magnetar.broker.usecases.handles import WritableTopic
from magnetar.broker.usecases.schemas import noting_new_schema
from magnetar.broker.usecases.standing import Standing
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.broker.usecases.topic_opening import open_topic
from magnetar.ledger.entry import Entry
from magnetar.storage.store import Done
from magnetar.wire.kafka.records import read_header
from magnetar.wire.pulsar.entry import EntryView, of_transaction

_WRITE: Final = Operation.WRITE  # asked for with each request, without a look into the class


class OpenedProducer:
    """The handle of an open producer.  `schema_version` is empty if it has no schema."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_may_write",
        "_partition",
        "_producer",
        "_requires_encryption",
        "schema_version",
    )

    def __init__(
        self,
        schema_version: bytes,
        partition: Partition,
        producer: Producer,
        clock: Clock,
        may_write: Callable[[int], bool],
        *,
        requires_encryption: bool,
    ) -> None:
        """`may_write` says whether the transaction of a producer id may write to the partition."""
        self._may_write = may_write
        self.schema_version = schema_version
        self._partition = partition
        self._producer = producer
        self._clock = clock
        self._requires_encryption = requires_encryption

    @property
    def name(self) -> str:
        return self._producer.name

    @property
    def is_ready(self) -> bool:
        """Whether it may publish.  Otherwise it waits for exclusive access, and its port learns when it has that."""
        return self._producer.is_ready

    @property
    def topic_epoch(self) -> int | None:
        """The topic's epoch once the producer is ready; None if the topic never had an exclusive producer."""
        return self._producer.topic_epoch

    @property
    def partition_index(self) -> int:
        """The number of its partition; -1 for a topic that is not partitioned."""
        return partition_index(self._partition)

    @property
    def last_sequence_id(self) -> int:
        """The last sequence id of its name in its partition: as `Partition.last_sequence_id`."""
        return self._partition.last_sequence_id(self._producer.name)

    def publish(
        self, payload: memoryview, view: EntryView, transaction: tuple[int, int] | None, done: Done
    ) -> Entry:
        """Append an entry to the producer's partition, as a part of `transaction`; see `Partition.publish`.

        Raises:
            EncryptionRequired, InvalidRecord, TopicTerminated, ProducersHeld, ProducersRefused, StorageError
            InvalidTxnState: it says that it is of another transaction, or that is not open, or another client's, or has
                not this partition.
            PolicyViolation: the topic does not store what is published.
        """
        if self._requires_encryption and not view.is_encrypted:
            raise EncryptionRequired("Messages must be encrypted")
        producer = self._producer
        if transaction is not None or view.transaction is not None:
            view = self._checked(view, transaction)
            payload = view.data
            producer.messages_in += view.num_messages
            producer.bytes_in += len(payload)
            return self._partition.publish(
                payload, view, self._clock.now_ms(), done, transaction=transaction_of(view)
            )
        producer.messages_in += view.num_messages
        producer.bytes_in += len(payload)
        return self._partition.publish(payload, view, self._clock.now_ms(), done)

    def _checked(self, view: EntryView, transaction: tuple[int, int] | None) -> EntryView:
        """An entry of a transaction, which says so: Go's client says it in its command alone."""
        if not self._partition.topic.name.persistent:
            raise PolicyViolation("A non-persistent topic does not take part in transactions")
        if view.transaction is None and transaction is not None:
            view = of_transaction(view, transaction)
        producer_id = transaction_of(view)
        if transaction != view.transaction or producer_id is None or not self._may_write(producer_id):
            raise InvalidTxnState(f"The transaction {transaction} is not open, or has not this topic")
        return view

    def owed_s(self) -> float:
        """How many seconds the producers of its partition have to wait, because they have sent more than the rate
        allows.
        """
        partition = self._partition
        if partition.publish_limit is None and partition.shared_publish_limit is None:
            return 0.0  # nearly always, and asked for each entry
        return partition.owed_s()


class PublishCases:
    """See the module's text."""

    def __init__(
        self,
        clock: Clock,
        access: AccessControl,
        topic_access: TopicAccess,
        pulsar_topics: PulsarTopics,
        namespaces: Namespaces,
        producers: Producers,
        schemas: SchemaRegistry,
        subscriptions: Subscriptions,
        opener: Opener,
        check_backlog: Callable[[Partition, Policies], Awaitable[None]],
        learner: DeduplicationLearner,
        standing: Standing,
        transactions: PulsarTransactions,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._access = access
        self._topic_access = topic_access
        self._pulsar_topics = pulsar_topics
        self._namespaces = namespaces
        self._producers = producers
        self._schemas = schemas
        self._subscriptions = subscriptions
        self._check_backlog = check_backlog
        self._learner = learner
        self._standing = standing
        self._opener = opener

    # --- Kafka's -----------------------------------------------------------------------------------------------------

    def to_write(self, caller: Caller, kafka_name: str) -> WritableTopic:
        """A topic to append batches to.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic
        """
        topic = self._topic_access.get(caller, _WRITE, kafka_name)
        if topic.is_internal:
            topic.check_changeable()
        return topic

    def to_write_by_id(self, caller: Caller, topic_id: bytes) -> WritableTopic:
        """As `to_write`; UnknownTopicId when no topic has this id."""
        topic = self._topic_access.get_by_id(caller, _WRITE, topic_id)
        if topic.is_internal:
            topic.check_changeable()
        return topic

    def check_transactional(self, caller: Caller, transactional_id: str) -> None:
        """Check that the caller may write in transactions with this id.

        Raises:
            TransactionalIdNotAuthorized
        """
        self._access.require(caller, Operation.WRITE, transactional_id_resource(transactional_id))

    async def look_into(self, owner: Hashable, batch: memoryview) -> None:
        """Check the keys of a batch that `Partition.append` wants opened, on behalf of `owner`.

        Raises:
            InvalidRecord, TooLargeExpanded, StorageError
        """
        await self._opener.run(owner, partial(check_keys, batch, read_header(batch)))

    # --- Pulsar's ----------------------------------------------------------------------------------------------------

    async def open_producer(
        self,
        caller: Caller,
        topic: str,
        wanted: ProducerSpec,
        port: ProducerPort,
        *,
        schema: Schema | None,
        encrypts: bool,
        initial_subscription: str = "",
    ) -> OpenedProducer:
        """Let a producer publish to the partition that `topic` names, which is created if the policy allows that.

        `initial_subscription` is created with it: a dead letter topic must keep its messages for a later reader.

        Raises:
            InvalidTopicName, TopicNotAuthorized, GroupNotAuthorized, NamespaceNotFound, UnknownTopic, TopicNotAllowed,
            TooManyTopics, TopicTerminated, EncryptionRequired, TooManyProducers, ProducersHeld, ProducersRefused,
            IncompatibleSchema, InvalidSchema, PolicyViolation, ProducerBusy, ProducerFenced, MetadataError
            NotLeader: another broker has the partition.
            ProducersNotKnown: deduplication was turned on, and the log cannot be read for what producers have sent.
        """
        producer = Producer(wanted, port, self._clock.now_ms())
        changes = self._standing.changes
        full = parse_partition(topic)[0].full
        self._access.require(caller, Operation.WRITE, topic_resource(full))
        if initial_subscription:
            self._access.require(caller, Operation.READ, subscription_resource(full, initial_subscription))
        partition = await open_topic(self._access, self._pulsar_topics, caller, topic)
        policies = self._namespaces.policies_of(partition.topic.name)
        await self._check_policies(partition, policies, topic, encrypts=encrypts)
        async with noting_new_schema(self._access, self._schemas, caller, partition.topic.name):
            schema_version = await self._schemas.check_producer(partition.topic.name, schema)
        if partition.is_terminated:
            raise TopicTerminated("Topic was already terminated")
        if partition.is_linked:
            raise TopicLinked("Topic is linked, and takes no messages until it is cut loose")
        if initial_subscription and partition.topic.name.persistent:
            await self._subscribe_first(caller, partition, initial_subscription, policies)
        producers = await self._admit(partition, producer, topic)
        is_permitted = partial(self._access.permits, caller, Operation.WRITE, topic_resource(full))
        if self._standing.changes != changes and not is_permitted():  # it was taken meanwhile
            producers.remove(producer)
            self._access.require(caller, Operation.WRITE, topic_resource(full))
        opened = OpenedProducer(
            schema_version,
            partition,
            producer,
            self._clock,
            partial(
                self._transactions.may_write,
                caller.owner,
                partition.topic.name.full,
                partition.index,
            ),
            requires_encryption=policies.encryption_required,
        )
        self._standing.add(opened, is_permitted, partial(_send_away, producers, producer))
        return opened

    async def _check_policies(
        self, partition: Partition, policies: Policies, topic: str, *, encrypts: bool
    ) -> None:
        """Check what the namespace and the topic allow a new producer; `topic` is its client's name for it.

        Raises:
            EncryptionRequired, TooManyProducers, ProducersHeld, ProducersRefused
        """
        if policies.encryption_required and not encrypts:
            raise EncryptionRequired(f"Encryption is required in {topic}")
        if 0 < policies.producers_max <= len(self._producers.of(partition)):
            raise TooManyProducers("Topic reached max producers limit")
        await self._check_backlog(partition, policies)

    async def _admit(self, partition: Partition, producer: Producer, topic: str) -> PartitionProducers:
        """Make the producer one of the partition's, once the broker knows what producers with its name have sent.

        Raises:
            ProducerBusy, ProducerFenced, UnknownTopic, MetadataError
            NotLeader: another broker has the partition now, or it was unloaded meanwhile.
            ProducersNotKnown: deduplication is on, and the log cannot be read for what producers have sent.
        """
        await self._learner.learn(partition)
        producers = self._producers.of(partition)
        try:
            await producers.admit(producer)
            partition.check_served()
        except NotLeader:
            producers.remove(producer)
            raise
        except ProducerFenced:
            partition.check_served()  # an exclusive one was sent away with the others when the partition went
            raise
        if not self._learner.knows(partition):  # deduplication was turned on meanwhile
            producers.remove(producer)
            raise ProducersNotKnown(f"deduplication of {topic} was turned on: try again")
        return producers

    async def _subscribe_first(
        self, caller: Caller, partition: Partition, subscription: str, policies: Policies
    ) -> None:
        if not policies.auto_subscription_creation and subscription not in self._subscriptions.names(
            partition
        ):
            raise PolicyViolation(
                "Could not create the initial subscription due to the auto subscription creation is not allowed."
            )
        resource = subscription_resource(partition.topic.name.full, subscription)
        async with self._access.record(
            caller, Change.SUBSCRIPTION_CREATE, resource, automatic=True
        ) as recording:
            if not await self._subscriptions.create(partition, subscription, partition.log.log_start):
                recording.is_none()

    def close_producer(self, opened: OpenedProducer) -> None:
        """The producer leaves."""
        self._standing.drop(opened)
        self._producers.of(opened._partition).remove(opened._producer)


def _send_away(producers: PartitionProducers, producer: Producer) -> None:
    producers.remove(producer)
    producer.port.closed()
