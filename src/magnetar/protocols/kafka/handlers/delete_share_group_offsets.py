"""DeleteShareGroupOffsets: delete a share group's positions in topics, while it has no members (KIP-932).  The server
answers when that is durable.

Served: v0.  The group starts again there, as its setting `share.auto.offset.reset` says.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import delete_share_group_offsets as codec
from magnetar.wire.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    ResponseTopic,
)

VERSIONS = (0, 0)


async def handle(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
    try:
        answers = await context.cases.share_offsets.delete(
            context.caller, context.node, request.group_id, names
        )
    except BrokerError as refusal:
        return DeleteShareGroupOffsetsResponse(error_code=error_code(refusal), error_message=str(refusal))
    if isinstance(answers, GroupError):
        return DeleteShareGroupOffsetsResponse(
            error_code=GROUP_ERROR_CODES[answers], error_message=answers.value
        )
    response = DeleteShareGroupOffsetsResponse()
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, BrokerError):
            row = ResponseTopic(name, error_code=error_code(answer), error_message=str(answer))
        else:
            row = ResponseTopic(name, answer.topic_id)
        response.responses.append(row)
    return response


API = Api.of(codec, VERSIONS, handle)
