"""AddPartitionsToTxn: partitions that a transaction is about to write to (KIP-98).

Served: v0-3.  All of them or none: when one is refused, the others are OPERATION_NOT_ATTEMPTED.  v4+ is how Kafka's
brokers ask each other.
"""

from collections.abc import Mapping

from magnetar.base.errors import BrokerError
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import PRODUCER_FENCED_SINCE, transaction_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import add_partitions_to_txn as codec
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

VERSIONS = (0, 3)


async def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    transactions = context.cases.transactions
    transactional_id = request.v3_and_below_transactional_id
    try:
        found = transactions.to_add_partitions(
            context.caller,
            context.node,
            transactional_id,
            [(topic.name, topic.partitions) for topic in request.v3_and_below_topics],
        )
    except BrokerError as refusal:
        return _answer(request, error_code(refusal), {})
    refused = {key: _refusal(one) for key, one in found.items() if isinstance(one, BrokerError)}
    if refused:
        return _answer(request, ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
    error = await transactions.add_partitions(
        transactional_id,
        Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        [one for one in found.values() if not isinstance(one, BrokerError)],
    )
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    return _answer(request, transaction_code(error, knows_fenced=knows_fenced), {})


def _refusal(error: BrokerError) -> ErrorCode:
    # A name that no topic can have is one that no topic has, says Kafka here.
    return error_code(error) if isinstance(error, NotAuthorized) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(
    request: AddPartitionsToTxnRequest, code: ErrorCode, refused: Mapping[tuple[str, int], ErrorCode]
) -> AddPartitionsToTxnResponse:
    """`code` for every partition but those that are refused."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(index, refused.get((topic.name, index), code))
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


API = Api.of(codec, VERSIONS, handle)
