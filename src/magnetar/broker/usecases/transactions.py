"""Kafka's transactions, and the ids of idempotent producers.

`node` is the node that the client asked.  It answers for the transactional ids that it coordinates.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from magnetar.base.errors import BrokerError, WireError, kept
from magnetar.base.names import TopicName
from magnetar.base.tasks import settle
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import InvalidRecord, NotLeader, UnknownTopic
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest
from magnetar.broker.producers.ids import ProducerIds
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    ANONYMOUS,
    CLUSTER,
    Caller,
    Operation,
    ResourceType,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.topic import Topic
from magnetar.broker.transactions.coordinator import TransactionCoordinator
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import Initialised, Producer, TopicPartition, TransactionRecord
from magnetar.broker.usecases.handles import WritableTopic
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.wire.kafka.records import TRANSACTIONAL, read_header

_LISTED_AT_ONCE: Final = 500  # transactional ids


def _found(
    wanted: Iterable[tuple[str, Iterable[int]]], get: Callable[[str], Topic]
) -> dict[tuple[str, int], TopicPartition | BrokerError]:
    """Partitions by the names that a client wrote, or why `get` refuses them."""
    found: dict[tuple[str, int], TopicPartition | BrokerError] = {}
    for kafka_name, indexes in wanted:
        try:
            topic = get(kafka_name)
        except BrokerError as refusal:
            found |= dict.fromkeys([(kafka_name, index) for index in indexes], kept(refusal))
            continue
        full, count = topic.name.full, topic.partition_count
        for index in indexes:
            known = 0 <= index < count
            found[kafka_name, index] = (full, index) if known else UnknownTopic(f"{full} has no {index}")
    return found


class BrokersTransactions:
    """The handle of a caller that is a broker: the partitions of any producer's transactions."""

    __slots__ = ("_kafka_topics", "_nodes", "_transactions")

    def __init__(self, nodes: Nodes, transactions: TransactionCoordinator, kafka_topics: KafkaTopics) -> None:
        self._nodes = nodes
        self._transactions = transactions
        self._kafka_topics = kafka_topics

    def partitions(
        self, node: Node, transactional_id: str, wanted: Iterable[tuple[str, Iterable[int]]]
    ) -> dict[tuple[str, int], TopicPartition | BrokerError]:
        """Partitions for `add` and `verify`, by the name that the client wrote, or why they are refused.

        Raises:
            NotCoordinator
        """
        self._nodes.check_coordinator(node, transactional_id)
        return _found(wanted, self._kafka_topics.get)

    async def add(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> TransactionError:
        """Let the transaction write to these partitions."""
        return await self._transactions.add_partitions(transactional_id, producer, partitions)

    def verify(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> TransactionError:
        """Whether the transaction has this partition."""
        return self._transactions.verify(transactional_id, producer, partition)


class TransactionCases:
    """See the module's text.  Transactions answer with a `TransactionError`, which also has a value for success."""

    def __init__(
        self,
        access: AccessControl,
        topic_access: TopicAccess,
        nodes: Nodes,
        transactions: TransactionCoordinator,
        producer_ids: ProducerIds,
        kafka_topics: KafkaTopics,
    ) -> None:
        self._access = access
        self._topic_access = topic_access
        self._nodes = nodes
        self._transactions = transactions
        self._producer_ids = producer_ids
        self._kafka_topics = kafka_topics

    # --- producers ---------------------------------------------------------------------------------------------------

    async def allocate_producer_id(self, caller: Caller) -> int:
        """An id for an idempotent producer.  The caller must have the right to write to at least one topic, as in
        Kafka.

        Raises:
            ClusterNotAuthorized, MetadataError
        """
        if not self._access.permits_any(caller, Operation.WRITE, ResourceType.TOPIC):
            self._access.require(caller, Operation.IDEMPOTENT_WRITE, CLUSTER)
        return await self._producer_ids.allocate()

    async def init_producer(
        self, caller: Caller, node: Node, transactional_id: str, timeout_ms: int, claimed: Producer | None
    ) -> Initialised:
        """Give a transactional id to a new producer; `claimed` is a producer that wants its next epoch.

        Raises:
            TransactionalIdNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.WRITE, transactional_id_resource(transactional_id))
        self._nodes.check_coordinator(node, transactional_id)
        owner = None if caller.principal == ANONYMOUS else caller.principal
        return await self._transactions.init_producer(transactional_id, timeout_ms, claimed, owner)

    # --- what a transaction is made of -------------------------------------------------------------------------------

    def to_add_partitions(
        self, caller: Caller, node: Node, transactional_id: str, wanted: Iterable[tuple[str, Iterable[int]]]
    ) -> dict[tuple[str, int], TopicPartition | BrokerError]:
        """Partitions for `add_partitions`, by the name that the client wrote, or why they are refused.

        Raises:
            TransactionalIdNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.WRITE, transactional_id_resource(transactional_id))
        self._nodes.check_coordinator(node, transactional_id)
        return _found(wanted, partial(self._topic_access.get, caller, Operation.WRITE))

    async def add_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> TransactionError:
        """Let the transaction write to the partitions from `to_add_partitions`."""
        return await self._transactions.add_partitions(transactional_id, producer, partitions)

    def of_brokers(self, caller: Caller) -> BrokersTransactions:
        """What brokers may ask, which do so for producers whose rights they have checked.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.CLUSTER_ACTION, CLUSTER)
        return BrokersTransactions(self._nodes, self._transactions, self._kafka_topics)

    async def add_group(
        self, caller: Caller, node: Node, transactional_id: str, producer: Producer, group_id: str
    ) -> TransactionError:
        """Let the transaction commit offsets of a group.

        Raises:
            TransactionalIdNotAuthorized, GroupNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.WRITE, transactional_id_resource(transactional_id))
        self._access.require(caller, Operation.READ, group_resource(group_id))
        self._nodes.check_coordinator(node, transactional_id)
        return await self._transactions.add_group(transactional_id, producer, group_id)

    async def join(
        self, transactional_id: str, batches: Iterable[tuple[WritableTopic, int, memoryview]]
    ) -> list[TransactionError | BrokerError]:
        """Let the transaction write to the partitions of its batches, all in one step; returns an answer for each.

        `PublishCases` has given the topics, and has let the caller write in transactions with this id.
        """
        answers: list[TransactionError | BrokerError] = []
        joining: dict[Producer, list[tuple[int, TopicPartition]]] = {}
        for topic, index, batch in batches:
            answers.append(TransactionError.NONE)
            try:
                header = read_header(batch)
                if header.attributes & TRANSACTIONAL:
                    producer = Producer(header.producer_id, header.producer_epoch)
                    topic.partition(index).check_first(*producer, header.base_sequence)
                    joining.setdefault(producer, []).append((len(answers) - 1, (topic.name.full, index)))
            except WireError as damage:
                answers[-1] = InvalidRecord(str(damage))
            except BrokerError as refusal:
                answers[-1] = kept(refusal)
        for producer, places in joining.items():
            partitions = [partition for _, partition in places]
            error = await self._transactions.join(transactional_id, producer, partitions)
            for place, _ in places:
                answers[place] = error
        return answers

    def verify_batch(
        self, transactional_id: str, topic: WritableTopic, index: int, batch: memoryview
    ) -> TransactionError:
        """Whether the transaction has the partition of a batch, as in `join`."""
        header = read_header(batch)
        producer = Producer(header.producer_id, header.producer_epoch)
        return self._transactions.verify(transactional_id, producer, (topic.name.full, index))

    async def commit_offsets(
        self, transactional_id: str, producer: Producer, request: CommitRequest, *, adds_group: bool
    ) -> Sequence[GroupError | TransactionError]:
        """Keep offsets of the topics from `OffsetCases.to_commit_in_transaction` until the transaction commits."""
        return await self._transactions.commit_offsets(
            transactional_id, producer, request, adds_group=adds_group
        )

    async def end(
        self,
        caller: Caller,
        node: Node,
        transactional_id: str,
        producer: Producer,
        *,
        commit: bool,
        renews: bool,
    ) -> Initialised:
        """Commit or abort; with `renews` also give the producer its next epoch.

        Raises:
            TransactionalIdNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.WRITE, transactional_id_resource(transactional_id))
        self._nodes.check_coordinator(node, transactional_id)
        if renews:
            return await self._transactions.end_and_renew(transactional_id, producer, commit=commit)
        return Initialised(await self._transactions.end(transactional_id, producer, commit=commit))

    # --- for administrators ------------------------------------------------------------------------------------------

    async def write_marker(
        self,
        caller: Caller,
        node: Node,
        kafka_name: str,
        index: int,
        producer: Producer,
        *,
        commit: bool,
        coordinator_epoch: int,
        renews: bool,
    ) -> None:
        """In one partition, which `node` leads, end what the producer has open there, whatever the coordinator knows
        of it.  `renews`: the epoch is the one that an end of version 2 has given.

        Raises:
            ClusterNotAuthorized, InvalidTopicName, UnknownTopic, InternalTopic, NotLeader, StorageError
            InvalidProducerEpoch: the producer has gone on since.
        """
        if not self._access.permits(caller, Operation.ALTER, CLUSTER):
            self._access.require(caller, Operation.CLUSTER_ACTION, CLUSTER)
        topic = self._kafka_topics.get(kafka_name)
        topic.check_changeable()
        partition = topic.partition(index)
        if partition.leader_id != node.node_id:
            raise NotLeader(f"node {node.node_id} does not lead {topic.name} {index}")
        async with self._access.record(caller, Change.TOPIC_END_TRANSACTION, topic.resource, partition=index):
            partition.check_marker(*producer, renews=renews)
            written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            partition.end_transaction(*producer, commit, coordinator_epoch, partial(settle, written))
            await written

    def describe(self, caller: Caller, node: Node, transactional_id: str) -> TransactionRecord | None:
        """What the id has open, without the topics that the caller may not describe.

        Raises:
            TransactionalIdNotAuthorized, NotCoordinator
        """
        self._access.require(caller, Operation.DESCRIBE, transactional_id_resource(transactional_id))
        self._nodes.check_coordinator(node, transactional_id)
        record = self._transactions.describe(transactional_id)
        if record is None:
            return None
        topics = {full for full, _ in record.partitions}
        seen = {
            one for one in topics if self._access.permits(caller, Operation.DESCRIBE, topic_resource(one))
        }
        return replace(record, partitions=frozenset(one for one in record.partitions if one[0] in seen))

    def shown_name(self, full: str) -> str:
        """The name of a transaction's topic for Kafka's clients."""
        return self._kafka_topics.shown(TopicName.parse(full))

    async def list(self, caller: Caller, node: Node) -> AsyncIterator[tuple[str, TransactionRecord]]:
        """The node's transactional ids that the caller may describe, with their records."""
        for number, (transactional_id, record) in enumerate(self._transactions.listed(), 1):
            if number % _LISTED_AT_ONCE == 0:
                await asyncio.sleep(0)  # there may be fifty thousand
            if self._nodes.coordinates(node, transactional_id) and self._access.permits(
                caller, Operation.DESCRIBE, transactional_id_resource(transactional_id)
            ):
                yield transactional_id, record
