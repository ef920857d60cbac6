"""DescribeTransactions: what transactional ids hold open (KIP-664).

Served: v0.
"""

from typing import TYPE_CHECKING

from magnetar.protocols.kafka.groups import shown_name
from magnetar.protocols.kafka.transactions import coordinates
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "describe_transactions"
VERSIONS = (0, 0)


def handle(context: "RequestContext", request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, one) for one in request.transactional_ids]
    )


def _describe(context: "RequestContext", transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
    if not coordinates(context, transactional_id):
        return TransactionState(ErrorCode.NOT_COORDINATOR, transactional_id)
    record = context.broker.transactions.describe(transactional_id)
    if record is None:
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    topics: dict[str, TopicData] = {}
    for full, index in sorted(record.partitions):
        topics.setdefault(full, TopicData(shown_name(context, full))).partitions.append(index)
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        record.state.value,
        record.timeout_ms,
        record.started_ms,
        record.producer_id,
        record.epoch,
        list(topics.values()),
    )
