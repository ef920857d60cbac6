"""DescribeTransactions: what transactional ids hold open (KIP-664).

Served: v0.  The answer describes an id once, however often the request names it.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_transactions as codec
from magnetar.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

VERSIONS = (0, 0)

_LARGE_PARTITIONS: Final = 1000


async def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Large:
    response = DescribeTransactionsResponse()
    partitions = 0
    for transactional_id in dict.fromkeys(request.transactional_ids):
        async with context.service.large.turn(1):
            state = _describe(context, transactional_id)
        response.transaction_states.append(state)
        partitions += sum(len(topic.partitions) for topic in state.topics)
    return Large(response) if partitions > _LARGE_PARTITIONS else response


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    if not transactional_id:
        return TransactionState(ErrorCode.INVALID_REQUEST, transactional_id)
    transactions = context.cases.transactions
    try:
        record = transactions.describe(context.caller, context.node, transactional_id)
    except BrokerError as refusal:
        return TransactionState(error_code(refusal), transactional_id)
    if record is None:
        return TransactionState(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    topics: dict[str, TopicData] = {}
    for full, index in sorted(record.partitions):
        topics.setdefault(full, TopicData(transactions.shown_name(full))).partitions.append(index)
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


API = Api.of(codec, VERSIONS, handle)
