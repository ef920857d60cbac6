"""DeleteRecords: move the start of partitions' logs forward, to any offset (KIP-107).

Served: v0-2.  Offset -1 stands for the high watermark.  The answer is the log's new start, at once durable; what lies
below it is not readable any more, and whole ledgers of it are removed.
"""

import asyncio

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.log.partition import Partition
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.leaders import leader_error
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
                partition = context.cases.topics.to_empty(
                    context.caller, wanted_topic.name, wanted.partition_index
                )
            except InvalidTopicName:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            except BrokerError as error:
                row.error_code = error_code(error)
            else:
                row.error_code = leader_error(context, partition)
                if row.error_code == ErrorCode.NONE:
                    work.append(_delete(context, partition, wanted.offset, row))
    await asyncio.gather(*work)
    return response


async def _delete(
    context: RequestContext, partition: Partition, offset: int, row: DeleteRecordsPartitionResult
) -> None:
    try:
        row.low_watermark = await context.cases.topics.delete_records(partition, offset)
    except BrokerError as error:
        row.error_code = error_code(error)


API = Api.of(codec, VERSIONS, handle, PIECES)
