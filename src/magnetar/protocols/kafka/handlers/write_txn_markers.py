"""WriteTxnMarkers: end a producer's transaction in single partitions, past its coordinator.

Served: v1-2 (v2 marks transactions of KIP-890, whose markers have a higher epoch than their batches, KIP-1228).
Kafka's brokers send it to each other, and `kafka-transactions abort` sends it for a partition where a transaction
hangs.  If a producer has nothing open in a partition, the server writes no marker there.
"""

import asyncio

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.transactions.model import COORDINATOR_EPOCH, Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import write_txn_markers as codec
from magnetar.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

VERSIONS = (1, 2)


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    work = []
    for marker in request.markers:
        topics: list[WritableTxnMarkerTopicResult] = []
        response.markers.append(WritableTxnMarkerResult(marker.producer_id, topics))
        for topic in marker.topics:
            rows = [WritableTxnMarkerPartitionResult(index) for index in topic.partition_indexes]
            topics.append(WritableTxnMarkerTopicResult(topic.name, rows))
            work += [_write(context, marker, topic.name, row) for row in rows]
    await asyncio.gather(*work)
    return response


async def _write(
    context: RequestContext, marker: WritableTxnMarker, topic: str, row: WritableTxnMarkerPartitionResult
) -> None:
    if marker.coordinator_epoch < COORDINATOR_EPOCH:
        row.error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return
    try:
        await context.cases.transactions.write_marker(
            context.caller,
            context.node,
            topic,
            row.partition_index,
            Producer(marker.producer_id, marker.producer_epoch),
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            renews=marker.transaction_version >= 2,
        )
    except InvalidTopicName:
        row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except BrokerError as refusal:
        row.error_code = error_code(refusal)


API = Api.of(codec, VERSIONS, handle)
