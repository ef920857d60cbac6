"""DescribeProducers: the idempotent producers that a partition remembers (KIP-664).

Served: v0.  The coordinator's epoch is that of the producer's last marker here, -1 before the first one.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import COORDINATOR_EPOCH
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
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
PIECES = Pieces("topics", "partition_indexes", "topics")


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                wanted.name, [_describe(context, wanted.name, index) for index in wanted.partition_indexes]
            )
            for wanted in request.topics
        ]
    )


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


API = Api.of(codec, VERSIONS, handle, PIECES)
