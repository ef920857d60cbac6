"""AddPartitionsToTxn: partitions that a transaction is about to write to (KIP-98).

Served: v0-5.  The server adds all partitions of a transaction or none: if it refuses one, the others get
OPERATION_NOT_ATTEMPTED.  Kafka's brokers send v4 and v5 to each other (KIP-890), for several transactions at once, and
also to ask whether partitions are part of a transaction; the caller needs ClusterAction.  A partition that is not part
of it gets TRANSACTION_ABORTABLE in both versions, as from Kafka.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.security.errors import NotAuthorized
from magnetar.broker.transactions.model import Producer
from magnetar.broker.usecases.transactions import BrokersTransactions
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import (
    PRODUCER_FENCED_SINCE,
    TRANSACTION_ERROR_CODES,
    transaction_code,
)
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import add_partitions_to_txn as codec
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

VERSIONS = (0, 5)

_FROM_BROKERS_SINCE: Final = 4


async def handle(context: RequestContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.api_version >= _FROM_BROKERS_SINCE:
        return await _handle_brokers(context, request)
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


async def _handle_brokers(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    try:
        transactions = context.cases.transactions.of_brokers(context.caller)
    except BrokerError as refusal:
        return AddPartitionsToTxnResponse(error_code=error_code(refusal))
    results = [
        AddPartitionsToTxnResult(one.transactional_id, await _add_or_verify(context, transactions, one))
        for one in request.transactions
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_or_verify(
    context: RequestContext, transactions: BrokersTransactions, asked: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    transactional_id, producer = asked.transactional_id, Producer(asked.producer_id, asked.producer_epoch)
    try:
        found = transactions.partitions(
            context.node, transactional_id, [(topic.name, topic.partitions) for topic in asked.topics]
        )
    except BrokerError as refusal:
        return _results(asked.topics, error_code(refusal), {})
    refused = {key: _refusal(one) for key, one in found.items() if isinstance(one, BrokerError)}
    if refused:
        return _results(asked.topics, ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
    partitions = {key: one for key, one in found.items() if not isinstance(one, BrokerError)}
    if asked.verify_only:
        verified = {
            key: TRANSACTION_ERROR_CODES[transactions.verify(transactional_id, producer, one)]
            for key, one in partitions.items()
        }
        return _results(asked.topics, ErrorCode.NONE, verified)
    error = await transactions.add(transactional_id, producer, partitions.values())
    return _results(asked.topics, TRANSACTION_ERROR_CODES[error], {})


def _refusal(error: BrokerError) -> ErrorCode:
    # As in Kafka, an invalid topic name gets the same error as an unknown topic.
    return error_code(error) if isinstance(error, NotAuthorized) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(
    request: AddPartitionsToTxnRequest, code: ErrorCode, refused: Mapping[tuple[str, int], ErrorCode]
) -> AddPartitionsToTxnResponse:
    results = _results(request.v3_and_below_topics, code, refused)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], code: ErrorCode, others: Mapping[tuple[str, int], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    """`code` for every partition, except those in `others`."""
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, others.get((topic.name, index), code))
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


API = Api.of(codec, VERSIONS, handle)
