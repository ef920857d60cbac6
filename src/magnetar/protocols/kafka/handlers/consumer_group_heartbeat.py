"""ConsumerGroupHeartbeat: a member joins, stays or leaves, and gets partitions from the server (KIP-848).

Served: v0-1 (regular expressions v1+, which RE2 runs; members make their ids themselves v1+, KIP-1082).  A member
that joins with an expression gets its topics at once, or with a later heartbeat if there are very many topics.
"""

from collections.abc import Awaitable
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.model import ConsumerHeartbeat, ConsumerHeartbeatResult
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, ELEMENTS_PER_TURN
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import consumer_group_heartbeat as codec
from magnetar.wire.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

VERSIONS = (0, 1)

_OWN_ID_SINCE: Final = 1


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    names, rows = request.subscribed_topic_names or [], request.topic_partitions or []
    rights = context.cases.groups.rights_changes
    try:
        if len(names) + len(rows) > ELEMENTS_AT_ONCE:
            return _in_turns(context, request, names, rows, rights)
        topics = context.cases.groups.subscribed(context.caller, context.node, request.group_id, names)
        owned = {one.topic_id: frozenset(one.partitions) for one in rows}
        answer = context.cases.groups.consumer_heartbeat(
            context.caller, context.node, _asked(context, request, topics, owned, rights)
        )
    except BrokerError as refusal:
        return _refused(refusal)
    return _response(answer) if isinstance(answer, ConsumerHeartbeatResult) else _awaited(answer)


async def _in_turns(
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    names: list[str],
    rows: list[TopicPartitions],
    rights: int,
) -> ConsumerGroupHeartbeatResponse:
    """As `handle`, but other clients get a turn of the event loop after every few names or topics."""
    topics: list[str] = []
    owned: dict[bytes, frozenset[int]] = {}
    cases = context.cases.groups

    def add(row: TopicPartitions) -> None:
        owned[row.topic_id] = frozenset(row.partitions)

    try:
        for start in range(0, len(names), ELEMENTS_PER_TURN):
            some = names[start : start + ELEMENTS_PER_TURN]
            async with context.service.large.turn(len(some)):
                topics += cases.subscribed(context.caller, context.node, request.group_id, some)
        await context.service.large.each(rows, add)
        answer = cases.consumer_heartbeat(
            context.caller, context.node, _asked(context, request, topics, owned, rights)
        )
    except BrokerError as refusal:
        return _refused(refusal)
    return _response(answer) if isinstance(answer, ConsumerHeartbeatResult) else await _awaited(answer)


async def _awaited(answer: Awaitable[ConsumerHeartbeatResult]) -> ConsumerGroupHeartbeatResponse:
    return _response(await answer)


def _asked(
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
    topics: list[str],
    owned: dict[bytes, frozenset[int]],
    rights: int,
) -> ConsumerHeartbeat:
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if names is None else tuple(names),
        tuple(topics),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if request.topic_partitions is None else owned,
        context.client_id or "",
        f"/{context.client_host}",  # the JVM's form of addresses, which tools expect
        context.api_version >= _OWN_ID_SINCE,
        checked_at=rights,
        viewer=context.cases.groups.viewer(context.caller),
    )


def _refused(refusal: BrokerError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error_code(refusal), error_message=str(refusal))


def _response(result: ConsumerHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            [
                TopicPartitions(topic_id, sorted(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=GROUP_ERROR_CODES[result.error],
        error_message=result.message or None,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


API = Api.of(codec, VERSIONS, handle)
