"""DeleteRecords: move the start of partitions' logs forward, to any offset (KIP-107).

Served: v0-2.  Offset -1 means the high watermark.  The answer is the log's new start, which is durable.  Clients can
no longer read what is below it, and the server removes whole ledgers of it.
"""

import asyncio
from collections.abc import Awaitable

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import delete_records as codec
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

VERSIONS = (0, 2)
PIECES = Pieces("topics", "partitions", "topics")


async def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    work = []
    for wanted_topic in request.topics:
        rows: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(wanted_topic.name, rows))
        for wanted in wanted_topic.partitions:
            rows.append(row := DeleteRecordsPartitionResult(wanted.partition_index, -1))
            try:
                deletion = context.cases.topics.delete_records(
                    context.caller, context.node, wanted_topic.name, wanted.partition_index, wanted.offset
                )
            except InvalidTopicName:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            except BrokerError as error:
                row.error_code = error_code(error)
            else:
                work.append(_delete(deletion, row))
    await asyncio.gather(*work)
    return response


async def _delete(deletion: Awaitable[int], row: DeleteRecordsPartitionResult) -> None:
    try:
        row.low_watermark = await deletion
    except BrokerError as error:
        row.error_code = error_code(error)


API = Api.of(codec, VERSIONS, handle, PIECES)
