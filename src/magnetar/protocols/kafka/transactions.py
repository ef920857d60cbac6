"""What the handlers of the transaction APIs share.

There is no part of KIP-890's second half here: the feature `transaction.version` is not advertised, and clients use the
protocol of KIP-98, in which AddPartitionsToTxn and AddOffsetsToTxn come before what they announce.
"""

from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.errors import TransactionError
from magnetar.protocols.kafka.groups import is_coordinator
from magnetar.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from magnetar.broker.transactions.record import TopicPartition
    from magnetar.protocols.kafka.registry import RequestContext

TRANSACTION_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in TransactionError}

PRODUCER_FENCED_SINCE: Final = 2  # of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn (KIP-588)


def transaction_code(error: TransactionError, *, knows_fenced: bool) -> ErrorCode:
    """`knows_fenced`: whether the client's version of the API has PRODUCER_FENCED, or the older code for it."""
    if error is TransactionError.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return TRANSACTION_ERROR_CODES[error]


def coordinates(context: "RequestContext", transactional_id: str) -> bool:
    """Whether the node that was asked is the one that FindCoordinator names for the transactional id."""
    return is_coordinator(context, transactional_id)


def known_partition(context: "RequestContext", kafka_name: str, index: int) -> "TopicPartition | None":
    """The partition that a client means; None when there is none."""
    try:
        topic = context.broker.kafka_topic(kafka_name)
    except BrokerError:
        return None
    return (topic.name.full, index) if 0 <= index < topic.partition_count else None
