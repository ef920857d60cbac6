"""AddPartitionsToTxn: partitions that a transaction is about to write to (KIP-98).

Served: v0-3.  All of them or none: when one does not exist, the others are OPERATION_NOT_ATTEMPTED.  v4+ is how Kafka's
brokers ask each other.
"""

from typing import TYPE_CHECKING

from magnetar.broker.transactions.rules import Producer
from magnetar.protocols.kafka.transactions import (
    PRODUCER_FENCED_SINCE,
    coordinates,
    known_partition,
    transaction_code,
)
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "add_partitions_to_txn"
VERSIONS = (0, 3)


async def handle(context: "RequestContext", request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    transactional_id = request.v3_and_below_transactional_id
    if not coordinates(context, transactional_id):
        return _answer(request, ErrorCode.NOT_COORDINATOR)
    found = {
        (topic.name, index): known_partition(context, topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    }
    missing = {key for key, partition in found.items() if partition is None}
    if missing:
        return _answer(request, ErrorCode.OPERATION_NOT_ATTEMPTED, missing)
    error = await context.broker.transactions.add_partitions(
        transactional_id,
        Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        [partition for partition in found.values() if partition is not None],
    )
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    return _answer(request, transaction_code(error, knows_fenced=knows_fenced))


def _answer(
    request: AddPartitionsToTxnRequest, code: ErrorCode, missing: "set[tuple[str, int]] | None" = None
) -> AddPartitionsToTxnResponse:
    """`code` for every partition but those that are missing."""
    absent = missing or set()
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(
                        index,
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if (topic.name, index) in absent else code,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
