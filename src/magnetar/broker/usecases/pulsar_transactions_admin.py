"""Pulsar's transactions as administrators see them: which are open, what topics and subscriptions have of them, and an
end for one that its client does not end.

All of it is for superusers, because a transaction belongs to its client.  To look takes the right to describe the
cluster, and to abort a transaction the right to alter it.  Where the server has none of Pulsar's transactions,
everything here raises TransactionsDisabled.  What a topic holds of transactions is of both protocols, as producer ids
are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from magnetar.base.errors import BrokerError
from magnetar.base.names import TopicName
from magnetar.broker.log.partition import Partition
from magnetar.broker.log.pulsar_transactions import COORDINATOR
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation
from magnetar.broker.subscriptions.admin import SubscriptionAdmin, partition_name
from magnetar.broker.subscriptions.positions import position_below
from magnetar.broker.subscriptions.sharing import of_entry_id
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.transactions.errors import TransactionCoordinatorNotFound, TransactionsDisabled
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions, id_text
from magnetar.broker.transactions.pulsar_model import PulsarTransaction
from magnetar.ledger.cursor_store import CursorKey
from magnetar.storage.store import EntryId, LedgerId

Position = tuple[int, int]
"""Ledger id and entry id."""


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """Up to `low_water_mark` all transactions have ended.  `recovered_ms`: begin and end of reading what is stored."""

    last_id: int
    low_water_mark: int
    open_count: int
    recovered_ms: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TransactionInTopic:
    """`start` is where its first entry is in a partition, as long as it is open there."""

    start: Position | None
    is_aborted: bool


@dataclass(frozen=True, slots=True)
class TransactionStatistics:
    """`produced` is by partition, `acknowledged` by partition and subscription: up to where everything is acknowledged
    in the transaction, None if that does not begin at the subscription's position.
    """

    id_text: str
    status: str
    owner: str
    began_ms: int
    timeout_ms: int
    produced: Mapping[str, TransactionInTopic]
    acknowledged: Mapping[str, Mapping[str, Position | None]]


@dataclass(frozen=True, slots=True)
class TopicTransactions:
    """What a partition holds of transactions.  `max_read`: the last entry that its consumers may be given.
    `low_water_marks` are by coordinator.
    """

    is_known: bool
    max_read: Position
    open_count: int
    aborted_count: int
    low_water_marks: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class SubscriptionTransactions:
    """How many open transactions have acknowledged messages of a subscription."""

    open_count: int
    low_water_marks: Mapping[int, int]


class PendingState(Enum):
    """How far a message is acknowledged, by the words of Pulsar's tools."""

    PENDING = "PendingAck"
    ACKNOWLEDGED = "MarkDelete"
    NOT_PENDING = "NotInPendingAck"
    NO_MESSAGE = "InvalidPosition"


class PulsarTransactionAdminCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        pulsar_topics: PulsarTopics,
        admin: SubscriptionAdmin,
        transactions: PulsarTransactions,
        *,
        is_enabled: bool,
    ) -> None:
        self._access = access
        self._is_enabled = is_enabled
        self._pulsar_topics = pulsar_topics
        self._admin = admin
        self._transactions = transactions

    # --- the coordinator ---------------------------------------------------------------------------------------------

    def coordinators(self, caller: Caller) -> Sequence[int]:
        """The coordinators' numbers: there is one.  Raises ClusterNotAuthorized."""
        self._require(caller)
        return (COORDINATOR,)

    def coordinator(self, caller: Caller, number: int) -> CoordinatorStatistics:
        """Raises ClusterNotAuthorized, TransactionCoordinatorNotFound."""
        self._require(caller)
        _check_coordinator(number)
        transactions = self._transactions
        return CoordinatorStatistics(
            transactions.last_id,
            transactions.low_water_mark,
            len(transactions.all),
            transactions.recovered_ms,
        )

    async def transaction(self, caller: Caller, coordinator: int, producer_id: int) -> TransactionStatistics:
        """A transaction that has not ended.

        Raises:
            ClusterNotAuthorized, TransactionCoordinatorNotFound, TransactionNotFound, StorageError
        """
        self._require(caller)
        return await self._described(self._find(coordinator, producer_id))

    async def slow(
        self, caller: Caller, timeout_ms: int, coordinator: int | None = None
    ) -> Sequence[TransactionStatistics]:
        """The transactions of a coordinator, or (None) of all, whose time-out is longer than `timeout_ms`: that is what
        Pulsar calls slow.

        Raises:
            ClusterNotAuthorized, TransactionCoordinatorNotFound, StorageError
        """
        self._require(caller)
        if coordinator is not None:
            _check_coordinator(coordinator)
        return [await self._described(one) for one in self._transactions.all if one.timeout_ms > timeout_ms]

    async def abort(self, caller: Caller, coordinator: int, producer_id: int) -> None:
        """Abort a transaction, whichever client has begun it.

        Raises:
            ClusterNotAuthorized, TransactionCoordinatorNotFound, TransactionNotFound, InvalidTransactionStatus,
            MetadataError
        """
        async with self._access.change(
            caller,
            Operation.ALTER,
            CLUSTER,
            Change.TRANSACTION_ABORT,
            coordinator=coordinator,
            transaction=producer_id,
        ):
            self._check_enabled()
            await self._transactions.abort(self._find(coordinator, producer_id).producer_id)

    # --- topics ------------------------------------------------------------------------------------------------------

    async def of_topic(self, caller: Caller, topic: str) -> TopicTransactions:
        """What the partition that `topic` names has of transactions.

        Raises:
            ClusterNotAuthorized, InvalidTopicName, NamespaceNotFound, UnknownTopic, StorageError
        """
        self._require(caller)
        partition = self._pulsar_topics.partition(topic)
        return TopicTransactions(
            is_known=partition.uncertain is None,
            max_read=await position_below(partition.log, partition.last_stable_offset),
            open_count=partition.transactions.open_count,
            aborted_count=partition.transactions.aborted_count,
            low_water_marks=self._low_water_marks,
        )

    async def in_topic(
        self, caller: Caller, topic: str, coordinator: int, producer_id: int
    ) -> TransactionInTopic:
        """What a partition has of one transaction.  Raises as `of_topic`."""
        self._require(caller)
        partition = self._pulsar_topics.partition(topic)
        if coordinator != COORDINATOR:
            return TransactionInTopic(None, is_aborted=False)
        return await _in_partition(partition, producer_id)

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def of_subscription(self, caller: Caller, topic: str, name: str) -> SubscriptionTransactions:
        """What the subscription of a partition has of transactions.

        Raises:
            ClusterNotAuthorized, InvalidTopicName, NamespaceNotFound, UnknownTopic, SubscriptionNotFound
        """
        self._require(caller)
        partition = self._pulsar_topics.partition(topic)
        self._admin.cursor(partition, name)
        count = self._transactions.pending.transaction_count(_key(partition, name))
        return SubscriptionTransactions(count, self._low_water_marks)

    async def in_subscription(
        self, caller: Caller, topic: str, name: str, coordinator: int, producer_id: int
    ) -> Position | None:
        """Up to where one transaction has acknowledged everything, from the subscription's position on.

        Raises:
            as `of_subscription`; StorageError
        """
        self._require(caller)
        partition = self._pulsar_topics.partition(topic)
        self._admin.cursor(partition, name)
        return (
            await self._acknowledged_to(partition, name, producer_id) if coordinator == COORDINATOR else None
        )

    async def pending(
        self, caller: Caller, topic: str, name: str, position: Position, batch_index: int | None = None
    ) -> PendingState:
        """Whether a message, or some message of an entry, is acknowledged in a transaction that is open.

        Raises:
            as `of_subscription`; StorageError, EntryCorrupt
        """
        self._require(caller)
        partition = self._pulsar_topics.partition(topic)
        cursor = self._admin.cursor(partition, name)
        ledger_id, entry_id = position[0], of_entry_id(position[1])[0]
        entry = await partition.log.locate(LedgerId(ledger_id), EntryId(entry_id))
        if entry is None:
            return PendingState.NOT_PENDING
        start, end = entry.base_offset, entry.last_offset + 1
        if (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):  # it is the next one that there is
            return PendingState.ACKNOWLEDGED if start <= cursor.mark_delete else PendingState.NOT_PENDING
        if end <= cursor.mark_delete:
            return PendingState.ACKNOWLEDGED
        if batch_index is not None:
            if not 0 <= batch_index < end - start:
                return PendingState.NO_MESSAGE
            start, end = start + batch_index, start + batch_index + 1
        is_pending = self._transactions.pending.left(_key(partition, name), [(start, end)]) != [(start, end)]
        return PendingState.PENDING if is_pending else PendingState.NOT_PENDING

    # --- inside ------------------------------------------------------------------------------------------------------

    def _require(self, caller: Caller) -> None:
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        self._check_enabled()

    def _check_enabled(self) -> None:
        if not self._is_enabled:
            raise TransactionsDisabled(
                "This Broker is not configured with transactionCoordinatorEnabled=true."
            )

    @property
    def _low_water_marks(self) -> Mapping[int, int]:
        return {COORDINATOR: self._transactions.low_water_mark}

    def _find(self, coordinator: int, producer_id: int) -> PulsarTransaction:
        if coordinator != COORDINATOR:
            raise TransactionCoordinatorNotFound(f"Transaction coordinator with id {coordinator} not found!")
        return self._transactions.find(producer_id)

    async def _described(self, transaction: PulsarTransaction) -> TransactionStatistics:
        produced: dict[str, TransactionInTopic] = {}
        for one in self._there(sorted(transaction.partitions)):
            produced[partition_name(one)] = await _in_partition(one, transaction.producer_id)
        acknowledged: dict[str, dict[str, Position | None]] = {}
        for key in sorted(transaction.acks):
            for one in self._there([(key.topic, key.partition)]):
                acknowledged.setdefault(partition_name(one), {})[
                    key.subscription
                ] = await self._acknowledged_to(one, key.subscription, transaction.producer_id)
        return TransactionStatistics(
            id_text(transaction.producer_id),
            transaction.status.value,
            transaction.owner,
            transaction.started_ms,
            transaction.timeout_ms,
            produced,
            acknowledged,
        )

    def _there(self, partitions: Sequence[tuple[str, int]]) -> Iterator[Partition]:
        """Those of the partitions that were not deleted meanwhile."""
        for topic, index in partitions:
            name = TopicName.parse(topic)
            if self._pulsar_topics.is_there(name):
                found = self._pulsar_topics.get(name)
                if index < found.partition_count:
                    yield found.partition(index)

    async def _acknowledged_to(self, partition: Partition, name: str, producer_id: int) -> Position | None:
        ranges = self._transactions.pending.of(producer_id).get(_key(partition, name))
        try:
            cursor = self._admin.cursor(partition, name)
        except BrokerError:
            return None  # it was dropped meanwhile
        if not ranges or ranges[0][0] > cursor.next_unacknowledged(partition.log.log_start):
            return None
        return await position_below(partition.log, ranges[0][1])


def _check_coordinator(number: int) -> None:
    if number != COORDINATOR:
        raise TransactionCoordinatorNotFound(f"Transaction coordinator not found! coordinator id : {number}")


def _key(partition: Partition, name: str) -> CursorKey:
    return CursorKey(name, partition.topic.name.full, partition.index)


async def _in_partition(partition: Partition, producer_id: int) -> TransactionInTopic:
    first = partition.transactions.first_offset(producer_id)
    entry = await partition.log.entry_at(first) if first >= 0 else None
    return TransactionInTopic(
        None if entry is None else (entry.ledger_id, entry.entry_id),
        partition.transactions.has_aborted(producer_id),
    )
