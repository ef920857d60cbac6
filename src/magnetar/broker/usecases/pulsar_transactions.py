"""Pulsar's transactions: what a client puts into them, and how they end.

Where transactions are not enabled, every command about them raises TransactionsDisabled.

A transaction belongs to the principal that began it (`Caller.owner`).  It requires no right of its own: what a client
does in a transaction requires the same rights as outside of one.
"""

import asyncio
from collections.abc import Iterable, Sequence

from magnetar.base.names import parse_partition
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.log.pulsar_transactions import COORDINATOR
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, subscription_resource, topic_resource
from magnetar.broker.subscriptions.ack_sets import Range
from magnetar.broker.subscriptions.model import AckedId
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.broker.transactions.errors import (
    TooManyTransactions,
    TransactionCoordinatorNotFound,
    TransactionsDisabled,
)
from magnetar.broker.transactions.model import TopicPartition
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions
from magnetar.broker.transactions.pulsar_model import ACKED_MAX
from magnetar.broker.usecases.subscribing import OpenedConsumer, stored_subscription

TxnId = tuple[int, int]
"""Most and least significant bits, as Pulsar has them."""


class PulsarTransactionCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        pulsar_topics: PulsarTopics,
        transactions: PulsarTransactions,
        *,
        is_enabled: bool,
    ) -> None:
        self._access = access
        self._pulsar_topics = pulsar_topics
        self._transactions = transactions
        self._is_enabled = is_enabled

    def connect(self, coordinator: int) -> None:
        """Check that there is a coordinator with this number, which takes no right: clients ask before they begin.

        Raises:
            TransactionsDisabled, TransactionCoordinatorNotFound
        """
        if not self._is_enabled:
            raise TransactionsDisabled("Transactions are not enabled.")
        if coordinator != COORDINATOR:
            raise TransactionCoordinatorNotFound(f"Transaction coordinator with id {coordinator} not found!")

    async def begin(self, caller: Caller, coordinator: int, timeout_ms: int) -> TxnId:
        """Begin a transaction; the broker aborts it after `timeout_ms`.

        Raises:
            TransactionsDisabled, TransactionCoordinatorNotFound, TransactionTimeoutTooLong, TooManyTransactions,
            MetadataError
        """
        self.connect(coordinator)
        return COORDINATOR, await self._transactions.begin(caller.owner, timeout_ms)

    async def add_partitions(self, caller: Caller, transaction: TxnId, names: Iterable[str]) -> None:
        """Let the transaction write to partitions, which have the names that Pulsar's clients use.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, TransactionNotFound,
            InvalidTransactionStatus, TooManyTransactions, MetadataError
        """
        producer_id = self._producer_id(caller, transaction)
        partitions = [self._writable(caller, name) for name in names]
        await self._transactions.add_partitions(producer_id, caller.owner, partitions)

    def _writable(self, caller: Caller, name: str) -> TopicPartition:
        topic, index = parse_partition(name)
        self._access.require(caller, Operation.WRITE, topic_resource(topic.full))
        if max(index, 0) >= self._pulsar_topics.get(topic).partition_count:
            raise UnknownTopic(f"{topic.full} has no partition {index}")
        return topic.full, max(index, 0)

    def add_subscriptions(
        self, caller: Caller, transaction: TxnId, subscriptions: Iterable[tuple[str, str]]
    ) -> None:
        """Check that the transaction may acknowledge in subscriptions, given by topic and name.

        Raises:
            InvalidTopicName, GroupNotAuthorized, TransactionNotFound, InvalidTransactionStatus
        """
        producer_id = self._producer_id(caller, transaction)
        for topic, name in subscriptions:
            full = parse_partition(topic)[0].full
            self._access.require(caller, Operation.READ, subscription_resource(full, name))
        self._transactions.check_open(producer_id, caller.owner)

    async def acknowledge(
        self,
        caller: Caller,
        transaction: TxnId,
        consumer: OpenedConsumer,
        pieces: Iterable[Sequence[AckedId]],
        *,
        cumulative: bool,
    ) -> None:
        """Acknowledge a consumer's messages when the transaction commits: all of them or none.

        Between two of the `pieces`, each of up to `IDS_AT_ONCE` ids, others have a turn.

        Raises:
            TransactionNotFound, InvalidTransactionStatus, TransactionConflict, TooManyTransactions,
            SubscriptionNotAllowed, MessageGone, StorageError, MetadataError
        """
        producer_id, owner = self._producer_id(caller, transaction), caller.owner
        self._transactions.check_open(producer_id, owner)
        subscription = stored_subscription(
            consumer, "A non-persistent topic does not take part in transactions"
        )
        ranges: list[Range] = []
        for ids in pieces:
            ranges += await subscription.to_acknowledge(ids, cumulative=cumulative)
            if len(ranges) > ACKED_MAX:
                raise TooManyTransactions("The transaction acknowledges more than fits into its record")
            await asyncio.sleep(0)
        await self._transactions.acknowledge(
            producer_id, owner, subscription.key, ranges, cumulative=cumulative
        )
        subscription.now_pending(ranges)

    async def end(self, caller: Caller, transaction: TxnId, *, commit: bool) -> None:
        """Commit or abort.

        Raises:
            TransactionNotFound, InvalidTransactionStatus, MetadataError
        """
        await self._transactions.end(self._producer_id(caller, transaction), caller.owner, commit=commit)

    def _producer_id(self, caller: Caller, transaction: TxnId) -> int:
        coordinator, producer_id = transaction
        self.connect(coordinator)
        return producer_id
