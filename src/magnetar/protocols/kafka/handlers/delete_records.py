"""DeleteRecords: move the start of partitions' logs forward, to any offset (KIP-107).

Served: v0-2.  Offset -1 stands for the high watermark.  The answer is the log's new start, at once durable; what lies
below it is not readable any more, and whole ledgers of it are removed.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.errors import OffsetOutOfRange, PolicyViolation
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.leaders import leader_error
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from magnetar.broker.log.partition import Partition
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "delete_records"
VERSIONS = (0, 2)
PIECES = Pieces("topics", "partitions", "topics")

HIGH_WATERMARK: Final = -1


async def handle(context: "RequestContext", request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    work = []
    for wanted_topic in request.topics:
        rows: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(wanted_topic.name, rows))
        for wanted in wanted_topic.partitions:
            rows.append(row := DeleteRecordsPartitionResult(wanted.partition_index, -1))
            try:
                topic = context.broker.kafka_topic(wanted_topic.name)
                topic.check_changeable()
                partition = topic.partition(wanted.partition_index)
            except InvalidTopicName:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            except BrokerError as error:
                row.error_code = error_code(error)
            else:
                row.error_code = leader_error(context, partition)
                if row.error_code == ErrorCode.NONE:
                    work.append(_delete(partition, wanted.offset, row))
    await asyncio.gather(*work)
    return response


async def _delete(partition: "Partition", offset: int, row: DeleteRecordsPartitionResult) -> None:
    log = partition.log
    try:
        if partition.topic.config.compact and not partition.topic.config.delete:
            raise PolicyViolation("records of a topic with cleanup.policy=compact are not deleted by offset")
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not between 0 and {log.high_watermark}")
        row.low_watermark = await log.trim(log_start=target)
    except BrokerError as error:
        row.error_code = error_code(error)
