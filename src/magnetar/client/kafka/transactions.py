"""The requests of KIP-98: a producer's id, the partitions of its transaction, and the end of that.

Each may be repeated after a lost connection: the producer gets the next epoch, added partitions stay added, and
ending a transaction again in the same way succeeds.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from magnetar.client.kafka.cluster import Cluster, CoordinatorKind, error_of
from magnetar.client.kafka.connection import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    Connection,
)
from magnetar.client.kafka.errors import ConnectionLost, NotInTime, Refused
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from magnetar.wire.kafka.messages.list_transactions import ListTransactionsRequest

log: Final = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
_SHORT_TIMEOUT_MS: Final = 1_000


class Producer(NamedTuple):
    """A producer in requests.  `transactional_id` is None for one that is only idempotent."""

    transactional_id: str | None
    producer_id: int
    epoch: int


def idempotent_producer(cluster: Cluster) -> Producer:
    """A new producer id.  Raises NotInTime, Refused."""
    return _initialised(cluster, None, 0)


def transactional_producer(cluster: Cluster, transactional_id: str, timeout_ms: int) -> Producer:
    """The next epoch of the id.  The broker fences an older producer with the id, and aborts its open transaction.

    Raises:
        NotInTime, Refused: INVALID_TRANSACTION_TIMEOUT if the broker allows less than `timeout_ms`.
    """
    return _initialised(cluster, transactional_id, timeout_ms)


def _initialised(cluster: Cluster, transactional_id: str | None, timeout_ms: int) -> Producer:
    def where() -> Connection:
        if transactional_id is None:
            return cluster.any_node()
        return cluster.coordinator(CoordinatorKind.TRANSACTION, transactional_id)

    request = InitProducerIdRequest(transactional_id, timeout_ms)
    what = "getting a producer id" if transactional_id is None else f"taking over '{transactional_id}'"
    answer = cluster.ask(what, where, INIT_PRODUCER_ID, request, lambda one: error_of(one.error_code))
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def add_partitions(cluster: Cluster, producer: Producer, partitions: Iterable[TopicPartition]) -> None:
    """Let the producer's transaction write to partitions; harmless if it already may.

    Raises:
        NotInTime, Fenced, Refused.
    """
    transactional_id = producer.transactional_id
    assert transactional_id is not None
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(set(partitions)):
        topics[topic].append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, found) for topic, found in topics.items()],
    )
    cluster.ask(
        f"adding partitions to the transaction of '{transactional_id}'",
        partial(cluster.coordinator, CoordinatorKind.TRANSACTION, transactional_id),
        ADD_PARTITIONS_TO_TXN,
        request,
        _worst,
    )


def _worst(answer: Any) -> ErrorCode:
    """The most useful code: if one partition is refused, all are, most of them with NOT_ATTEMPTED."""
    codes = {
        error_of(partition.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    } - {ErrorCode.NONE}
    if len(codes) > 1:
        codes.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return min(codes, key=lambda code: code.retriable, default=ErrorCode.NONE)


def end_transaction(cluster: Cluster, producer: Producer, *, commit: bool) -> None:
    """Commit or abort the producer's open transaction; harmless if that was done already.

    Raises:
        Fenced: the transaction has ended in another way, or belongs to another producer. NotInTime, Refused.
    """
    transactional_id = producer.transactional_id
    assert transactional_id is not None
    cluster.ask(
        f"{'committing' if commit else 'aborting'} the transaction of '{transactional_id}'",
        partial(cluster.coordinator, CoordinatorKind.TRANSACTION, transactional_id),
        END_TXN,
        EndTxnRequest(transactional_id, producer.producer_id, producer.epoch, commit),
        lambda answer: error_of(answer.error_code),
    )


def abort_left_over(cluster: Cluster, prefix: str) -> None:
    """Abort the open transactions of ids that begin with `prefix`, if brokers list open ones (Kafka 3.0 and later).

    No task may write under these ids any more.  A transaction that cannot be aborted now times out by itself.
    """
    for connection in cluster.every_node():
        if not connection.speaks(LIST_TRANSACTIONS):
            continue
        try:
            answer = connection.call(LIST_TRANSACTIONS, ListTransactionsRequest(state_filters=["Ongoing"]))
            found = [one.transactional_id for one in answer.transaction_states]
            for transactional_id in found:
                if transactional_id.startswith(prefix):
                    log.warning("aborting what an older attempt left open as '%s'", transactional_id)
                    transactional_producer(cluster, transactional_id, _SHORT_TIMEOUT_MS)
        except (ConnectionLost, NotInTime, Refused) as error:
            log.warning("the transactions that older attempts left open cannot be aborted now: %s", error)
