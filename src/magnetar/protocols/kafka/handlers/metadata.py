"""Metadata: nodes, topics and who leads their partitions.

Served: v0-13 (topic ids v10+).  Topics that do not exist are made when the client and `auto.create.topics.enable` allow
it.  A topic is echoed under the name that was asked for; a listing shows names as `TopicName.kafka_name` does.
Who asks for authorized operations may do all of them: there is no authorizer (`permissions.py`).
`__consumer_offsets` and `__transaction_state` are shown as internal once there is a group or a transactional id: with
50 partitions each, which have no records; nobody writes to them, changes or deletes them.
"""

from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import UnknownTopic
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.permissions import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from magnetar.wire.kafka.runtime import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from magnetar.broker.topics import Topic
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "metadata"
VERSIONS = (0, 13)

_AUTO_CREATE_FIELD_SINCE: Final = 4


def handle(
    context: "RequestContext", request: MetadataRequest
) -> "MetadataResponse | Awaitable[MetadataResponse]":
    broker = context.broker
    response = MetadataResponse(
        brokers=node_endpoints(context, MetadataResponseBroker),
        cluster_id=broker.settings.cluster_id,
        controller_id=broker.nodes.controller_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version == 0):
        everything = [*broker.topics, *broker.internal_topics.present()]
        response.topics = [_describe(topic, broker.kafka_name(topic.name)) for topic in everything]
        return _with_operations(request, response)
    may_create = broker.settings.auto_create_topics and (
        request.allow_auto_topic_creation or context.api_version < _AUTO_CREATE_FIELD_SINCE
    )
    missing = []
    for one in wanted:
        row = _find(context, one)
        response.topics.append(row)
        if may_create and row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(row)
    return _create(context, request, response, missing) if missing else _with_operations(request, response)


def _with_operations(request: MetadataRequest, response: MetadataResponse) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for row in response.topics:
            if row.error_code == ErrorCode.NONE:
                row.topic_authorized_operations = TOPIC_OPERATIONS
    return response


async def _create(
    context: "RequestContext",
    request: MetadataRequest,
    response: MetadataResponse,
    missing: list[MetadataResponseTopic],
) -> MetadataResponse:
    for row in missing:
        assert row.name is not None
        try:
            topic = await context.broker.topics.ensure(context.broker.topic_name(row.name))
        except BrokerError as error:
            row.error_code = error_code(error)
        else:
            created = _describe(topic, row.name)
            row.error_code, row.topic_id, row.partitions = (
                ErrorCode.NONE,
                created.topic_id,
                created.partitions,
            )
    return _with_operations(request, response)


def _find(context: "RequestContext", wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    broker = context.broker
    try:
        if wanted.topic_id != ZERO_UUID:
            topic = broker.topics.get_by_id(wanted.topic_id)
            return _describe(topic, broker.kafka_name(topic.name))
        if not wanted.name:
            return MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, wanted.name)
        return _describe(broker.kafka_topic(wanted.name), wanted.name)
    except UnknownTopic:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
    except BrokerError as error:
        return MetadataResponseTopic(error_code(error), wanted.name or None, wanted.topic_id)


def _describe(topic: "Topic", name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        ErrorCode.NONE,
        name,
        topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                ErrorCode.NONE, index, replicas[0], topic.leader_epoch(index), replicas, replicas
            )
            for index, replicas in enumerate(topic.replicas)
        ],
    )
