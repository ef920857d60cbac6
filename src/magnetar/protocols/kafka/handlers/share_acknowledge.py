"""ShareAcknowledge: a share consumer acknowledges records, without a fetch (KIP-932).

Served: v1-2 (v2 renews the time that the consumer has for records, KIP-1222).  The server answers when that is
durable.  If one record of a partition is no longer the consumer's, the whole partition gets INVALID_RECORD_STATE, and
nothing of it changes.  The same is true for a renewal that the group's settings do not allow.
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.share_acknowledging import (
    FINAL_EPOCH,
    acknowledge,
    batches_by_partition,
    problem_of,
)
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import share_acknowledge as codec
from magnetar.wire.kafka.messages.share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

VERSIONS = (1, 2)


async def handle(context: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    problem = problem_of(request.group_id, request.member_id)
    if problem is not None:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    try:
        share = context.cases.sharing.acknowledging(
            context.caller, request.group_id or "", request.member_id or "", request.share_session_epoch
        )
    except BrokerError as refusal:
        return ShareAcknowledgeResponse(error_code=error_code(refusal), error_message=str(refusal))
    response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=share.rules.lock_ms)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    answers = await acknowledge(
        context, share, batches_by_partition(request.topics), is_renewing=request.is_renew_ack
    )
    for (topic_id, index), (code, message) in answers.items():
        row = PartitionData(partition_index=index, error_code=code, error_message=message)
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            response.node_endpoints = node_endpoints(context, NodeEndpoint)
        topics.setdefault(topic_id, ShareAcknowledgeTopicResponse(topic_id)).partitions.append(row)
    if request.share_session_epoch == FINAL_EPOCH:
        share.end()
    response.responses = list(topics.values())
    return response


API = Api.of(codec, VERSIONS, handle)
