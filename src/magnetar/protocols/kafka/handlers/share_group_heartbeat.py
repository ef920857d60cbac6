"""ShareGroupHeartbeat: a member of a share group joins, stays or leaves, and learns which partitions it fetches
(KIP-932).

Served: v1.  A share group and the Pulsar subscription of the same name are one thing.  So a share group may have the
name of a subscription, but not the name of a group of another kind that has members or records of its own.
"""

from collections.abc import Awaitable

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.model import ConsumerHeartbeatResult, ShareHeartbeat
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import share_group_heartbeat as codec
from magnetar.wire.kafka.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

VERSIONS = (1, 1)


def handle(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]:
    names, rights = request.subscribed_topic_names or [], context.cases.groups.rights_changes
    if len(names) > ELEMENTS_AT_ONCE:
        return _in_turns(context, request, names, rights)
    try:
        topics = context.cases.groups.subscribed(context.caller, context.node, request.group_id, names)
        answer = context.cases.groups.share_heartbeat(
            context.caller, context.node, _asked(context, request, topics, rights)
        )
    except BrokerError as refusal:
        return _refused(refusal)
    return _response(answer) if isinstance(answer, ConsumerHeartbeatResult) else _awaited(answer)


async def _in_turns(
    context: RequestContext, request: ShareGroupHeartbeatRequest, names: list[str], rights: int
) -> ShareGroupHeartbeatResponse:
    """As `handle`, but other clients get turns after every few names."""
    topics: list[str] = []
    cases = context.cases.groups
    try:
        for start in range(0, len(names), ELEMENTS_PER_TURN):
            some = names[start : start + ELEMENTS_PER_TURN]
            async with context.service.large.turn(len(some)):
                topics += cases.subscribed(context.caller, context.node, request.group_id, some)
        answer = cases.share_heartbeat(context.caller, context.node, _asked(context, request, topics, rights))
    except BrokerError as refusal:
        return _refused(refusal)
    return _response(answer) if isinstance(answer, ConsumerHeartbeatResult) else await _awaited(answer)


async def _awaited(answer: Awaitable[ConsumerHeartbeatResult]) -> ShareGroupHeartbeatResponse:
    return _response(await answer)


def _asked(
    context: RequestContext, request: ShareGroupHeartbeatRequest, topics: list[str], rights: int
) -> ShareHeartbeat:
    names = request.subscribed_topic_names
    return ShareHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.rack_id,
        None if names is None else tuple(names),
        tuple(topics),
        context.client_id or "",
        f"/{context.client_host}",  # the JVM's form of addresses, which tools expect
        checked_at=rights,
        viewer=context.cases.groups.viewer(context.caller),
    )


def _refused(refusal: BrokerError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error_code(refusal), error_message=str(refusal))


def _response(result: ConsumerHeartbeatResult) -> ShareGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            [
                TopicPartitions(topic_id, sorted(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=GROUP_ERROR_CODES[result.error],
        error_message=result.message or None,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


API = Api.of(codec, VERSIONS, handle)
