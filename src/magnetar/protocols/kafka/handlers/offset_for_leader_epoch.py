"""OffsetForLeaderEpoch: where a leader epoch ended, for clients that check their position after a leader change.

Served: v2-4 (KIP-101, KIP-279, KIP-320).
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.leaders import leader_error
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import offset_for_leader_epoch as codec
from magnetar.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

VERSIONS = (2, 4)
PIECES = Pieces("topics", "partitions", "topics")


def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for wanted_topic in request.topics:
        rows: list[EpochEndOffset] = []
        response.topics.append(OffsetForLeaderTopicResult(wanted_topic.topic, rows))
        for wanted in wanted_topic.partitions:
            row = EpochEndOffset(partition=wanted.partition)
            rows.append(row)
            try:
                topic = context.cases.topics.describe(context.caller, wanted_topic.topic)
                partition = topic.partition(wanted.partition)
            except BrokerError as error:
                row.error_code = error_code(error)
                continue
            row.error_code = leader_error(context, partition, wanted.current_leader_epoch)
            if row.error_code == ErrorCode.NONE:
                end = partition.log.epoch_end(wanted.leader_epoch)
                if end is not None:
                    row.leader_epoch, row.end_offset = end
    return response


API = Api.of(codec, VERSIONS, handle, PIECES)
