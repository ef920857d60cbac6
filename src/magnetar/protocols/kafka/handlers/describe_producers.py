"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

Served: v0.  The coordinator's epoch is that of the producer's last marker here, -1 before the first one.
The answer describes a partition once, however often the request names it.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import COORDINATOR_EPOCH
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Large
from magnetar.protocols.kafka.leaders import leader_error
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_producers as codec
from magnetar.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

VERSIONS = (0, 0)

_LARGE_PRODUCERS: Final = 1000


async def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Large:
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    response = DescribeProducersResponse()
    producers = 0
    for name, indexes in wanted.items():
        row = TopicResponse(name)
        response.topics.append(row)
        for index in indexes:
            async with context.service.large.turn(1):
                row.partitions.append(_describe(context, name, index))
            producers += len(row.partitions[-1].active_producers)
    return Large(response) if producers > _LARGE_PRODUCERS else response


def _describe(context: RequestContext, topic_name: str, index: int) -> PartitionResponse:
    row = PartitionResponse(index)
    try:
        partition = context.cases.reading.to_read(context.caller, topic_name).partition(index)
    except BrokerError as error:
        row.error_code, row.error_message = error_code(error), str(error)
        return row
    row.error_code = leader_error(context, partition)
    if row.error_code == ErrorCode.NONE:
        row.active_producers = [
            ProducerState(
                known.producer_id,
                known.epoch,
                known.last_sequence,
                known.last_timestamp_ms,
                coordinator_epoch=COORDINATOR_EPOCH if known.is_marked else -1,
                current_txn_start_offset=known.transaction_offset,
            )
            for known in partition.known_producers
        ]
    return row


API = Api.of(codec, VERSIONS, handle)
