"""DescribeShareGroupOffsets: where share groups are, and how much they have not acknowledged (KIP-932).

Served: v0-1 (v1 the lag, KIP-1226).  The start offset is the mark-delete of the subscription with the group's name,
and -1 if there is none; the lag is its backlog.  The answer describes a partition of a topic once, however often the
request names it.
"""

from collections.abc import Sequence
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import TopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.usecases.share_offsets import SharePosition
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_share_group_offsets as codec
from magnetar.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestGroup,
    ResponseGroup,
    ResponsePartition,
    ResponseTopic,
)

VERSIONS = (0, 1)
PIECES = Pieces("groups", "", "groups")

_PARTITIONS_PER_TURN: Final = 5  # to count a lag with half a million ranges takes 6 ms


async def handle(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    response = DescribeShareGroupOffsetsResponse()
    for wanted in request.groups:
        response.groups.append(await _group(context, wanted))
    return response


async def _group(context: RequestContext, wanted: RequestGroup) -> ResponseGroup:
    cases, caller = context.cases.share_offsets, context.caller
    row = ResponseGroup(wanted.group_id)
    try:
        cases.check_describe(caller, context.node, wanted.group_id)
        if wanted.topics is None:
            topics = [
                (context.cases.kafka_names.shown(TopicName.parse(full)), partitions)
                for full, partitions in cases.every_topic(caller, wanted.group_id)
            ]
        else:
            topics = [(topic.topic_name, topic.partitions) for topic in wanted.topics]
    except BrokerError as refusal:
        row.error_code, row.error_message = error_code(refusal), str(refusal)
        return row
    for name, partitions in topics:
        row.topics.append(await _topic(context, wanted.group_id, name, list(dict.fromkeys(partitions))))
    is_refused = row.topics and all(one.error_code for topic in row.topics for one in topic.partitions)
    if not is_refused and not cases.is_one(wanted.group_id):
        return ResponseGroup(
            wanted.group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=GroupError.GROUP_ID_NOT_FOUND.value,
        )
    return row


async def _topic(
    context: RequestContext, group_id: str, name: str, partitions: Sequence[int]
) -> ResponseTopic:
    row = ResponseTopic(name)
    for start in range(0, max(len(partitions), 1), _PARTITIONS_PER_TURN):
        some = partitions[start : start + _PARTITIONS_PER_TURN]
        async with context.service.large.turn(1 + len(some)):
            try:
                row.topic_id, positions = context.cases.share_offsets.describe(
                    context.caller, group_id, name, some
                )
            except BrokerError as refusal:
                row.partitions += [_refused(index, refusal) for index in partitions[start:]]
                break
            row.partitions += map(_position, some, positions)
    return row


def _position(index: int, found: SharePosition | BrokerError) -> ResponsePartition:
    if isinstance(found, BrokerError):
        return _refused(index, found)
    return ResponsePartition(index, found.offset, found.leader_epoch, found.lag)


def _refused(index: int, refusal: BrokerError) -> ResponsePartition:
    return ResponsePartition(index, error_code=error_code(refusal), error_message=str(refusal))


API = Api.of(codec, VERSIONS, handle, PIECES)
