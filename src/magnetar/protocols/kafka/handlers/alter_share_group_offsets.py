"""AlterShareGroupOffsets: move a share group without members (KIP-932).  The server answers when that is durable.

Served: v0.  In the partitions in which the group is moved, the server forgets what the group has acknowledged one by
one.  While Pulsar consumers use the subscription with the group's name, the group has members (NON_EMPTY_GROUP).
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import alter_share_group_offsets as codec
from magnetar.wire.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    ResponsePartition,
    ResponseTopic,
)

VERSIONS = (0, 0)


async def handle(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    wanted = {
        topic.topic_name: {one.partition_index: one.start_offset for one in topic.partitions}
        for topic in request.topics
    }
    try:
        answers = await context.cases.share_offsets.alter(
            context.caller, context.node, request.group_id, wanted
        )
    except BrokerError as refusal:
        return AlterShareGroupOffsetsResponse(error_code=error_code(refusal), error_message=str(refusal))
    if isinstance(answers, GroupError):
        return AlterShareGroupOffsetsResponse(
            error_code=GROUP_ERROR_CODES[answers], error_message=answers.value
        )
    response = AlterShareGroupOffsetsResponse()
    for (name, partitions), answer in zip(wanted.items(), answers, strict=True):
        row = ResponseTopic(name)
        if isinstance(answer, BrokerError):
            row.partitions = [_row(index, answer) for index in partitions]
        else:
            row.topic_id = answer.topic_id
            row.partitions = [_row(index, problem) for index, problem in answer.partitions.items()]
        response.responses.append(row)
    return response


def _row(index: int, problem: BrokerError | None) -> ResponsePartition:
    if problem is None:
        return ResponsePartition(index)
    return ResponsePartition(index, error_code(problem), str(problem))


API = Api.of(codec, VERSIONS, handle)
