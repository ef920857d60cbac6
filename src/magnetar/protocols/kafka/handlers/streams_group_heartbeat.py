"""StreamsGroupHeartbeat: a member of a Kafka Streams application joins, stays or leaves, and learns which tasks it has
(KIP-1071).

Served: v0.  The first member brings the topology.  The server creates the internal topics that are missing, if the
member has the right CREATE, and assigns active and standby tasks.  As Kafka 4.3 does, it refuses static members,
sources by regular expression, warm-up tasks and offsets of tasks with INVALID_REQUEST.  It also refuses a topology that
differs from the group's.  Partitions of internal topics count against the client's quota of mutations (KIP-599).
"""

from collections.abc import Iterable

from magnetar.base.errors import BrokerError
from magnetar.broker.groups.model import (
    Copartitioned,
    EndpointPartitions,
    InternalTopic,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    Subtopology,
    Task,
    Topology,
)
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.groups import GROUP_ERROR_CODES, by_subtopology
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import streams_group_heartbeat as codec
from magnetar.wire.kafka.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicInfo,
    TopicPartition,
)

VERSIONS = (0, 0)


async def handle(
    context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    mutations = context.meter.mutations(is_strict=True)
    try:
        result = await context.cases.streams_groups.heartbeat(
            context.caller, context.node, _asked(context, request), mutations
        )
    except BrokerError as refusal:
        return StreamsGroupHeartbeatResponse(error_code=error_code(refusal), error_message=str(refusal))
    response = _response(result)
    response.throttle_time_ms = mutations.throttle_ms()
    return response


def _asked(context: RequestContext, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint = request.user_endpoint
    return StreamsHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        request.endpoint_information_epoch,
        request.instance_id,
        request.rack_id,
        request.rebalance_timeout_ms,
        None if request.topology is None else _topology(request.topology),
        _tasks(request.active_tasks),
        _tasks(request.standby_tasks),
        _tasks(request.warmup_tasks),
        request.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        None if request.client_tags is None else _pairs(request.client_tags),
        request.task_offsets is not None or request.task_end_offsets is not None,
        request.shutdown_application,
        context.client_id or "",
        f"/{context.client_host}",  # as the JVM writes addresses, and tools expect
        viewer=context.cases.groups.viewer(context.caller),
        check_topics=context.cases.streams_groups.check_of_topics(context.caller),
    )


def _topology(topology: codec.Topology) -> Topology:
    parts = (
        Subtopology(
            part.subtopology_id,
            tuple(part.source_topics),
            tuple(part.source_topic_regex),
            tuple(part.repartition_sink_topics),
            _internal(part.repartition_source_topics),
            _internal(part.state_changelog_topics),
            tuple(
                Copartitioned(tuple(group.source_topics), tuple(group.repartition_source_topics))
                for group in part.copartition_groups
            ),
        )
        for part in topology.subtopologies
    )
    return Topology(topology.epoch, tuple(parts))


def _internal(topics: Iterable[TopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(topic.name, topic.partitions, topic.replication_factor, _pairs(topic.topic_configs))
        for topic in topics
    )


def _pairs(rows: Iterable[KeyValue]) -> tuple[tuple[str, str], ...]:
    return tuple((row.key, row.value) for row in rows)


def _tasks(rows: Iterable[TaskIds] | None) -> frozenset[Task] | None:
    if rows is None:
        return None
    return frozenset((row.subtopology_id, index) for row in rows for index in row.partitions)


def _response(result: StreamsHeartbeatResult) -> StreamsGroupHeartbeatResponse:
    response = StreamsGroupHeartbeatResponse(
        error_code=GROUP_ERROR_CODES[result.error],
        error_message=result.message or None,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        status=[Status(status.value, text) for status, text in result.statuses],
        endpoint_information_epoch=result.endpoint_epoch,
    )
    if result.tasks is not None:
        response.active_tasks = _rows(result.tasks.active)
        response.standby_tasks = _rows(result.tasks.standby)
        response.warmup_tasks = []
    if result.endpoints is not None:
        response.partitions_by_user_endpoint = [_endpoint(one) for one in result.endpoints]
    return response


def _rows(tasks: Iterable[Task]) -> list[TaskIds]:
    return [TaskIds(subtopology, indexes) for subtopology, indexes in by_subtopology(tasks)]


def _endpoint(one: EndpointPartitions) -> EndpointToPartitions:
    return EndpointToPartitions(
        Endpoint(one.host, one.port),
        [TopicPartition(topic, indexes) for topic, indexes in one.active],
        [TopicPartition(topic, indexes) for topic, indexes in one.standby],
    )


API = Api.of(codec, VERSIONS, handle)
