"""DeleteTopics: delete topics by name or by id, with their data and the offsets that groups have committed on them.

Served: v1-6 (v5 messages, v6 topic ids, KIP-516).  With `delete.topic.enable=false` the server refuses all of them.
`timeout_ms` has no effect: when the server answers, the topic is deleted.  Beyond the client's quota of mutations the
server refuses topics (v5+, THROTTLING_QUOTA_EXCEEDED), or the client waits afterwards (KIP-599).
"""

import asyncio
from collections import Counter
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.errors import TopicDeletionDisabled, UnknownTopic
from magnetar.broker.usecases.quotas import Mutations
from magnetar.broker.usecases.topics import TopicCases, TopicToDelete
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import delete_topics as codec
from magnetar.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from magnetar.wire.kafka.runtime import ZERO_UUID

VERSIONS = (1, 6)

_DISABLED_CODE_SINCE: Final = 3
_STRICT_SINCE: Final = 5
_NO_SUCH_NAME: Final = "This server does not host this topic-partition."


async def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    topics = context.cases.topics
    mutations = context.meter.mutations(is_strict=context.api_version >= _STRICT_SINCE)
    wanted = request.topics or [DeleteTopicState(name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    try:
        topics.check_deletion()
    except TopicDeletionDisabled as error:
        code, message = error_code(error), str(error)
        if context.api_version < _DISABLED_CODE_SINCE:
            code, message = ErrorCode.INVALID_REQUEST, "This version does not support topic deletion."
        response.responses = [DeletableTopicResult(one.name, one.topic_id, code, message) for one in wanted]
        return response
    found: list[tuple[DeletableTopicResult, TopicToDelete]] = []
    named: Counter[str | bytes] = Counter(one.topic_id if one.name is None else one.name for one in wanted)
    for one in wanted:
        key = one.topic_id if one.name is None else one.name
        if named[key] == 0:
            continue  # already answered as a duplicate
        row = DeletableTopicResult(one.name, one.topic_id)
        response.responses.append(row)
        if one.name is not None and one.topic_id != ZERO_UUID:
            _refuse(row, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        elif one.name is None and one.topic_id == ZERO_UUID:
            _refuse(row, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif named[key] > 1:
            what = "name" if one.name is not None else "id"
            _refuse(row, ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            named[key] = 0
        else:
            topic = _find(context, one, row)
            if topic is not None:
                found.append((row, topic))
    named_twice = Counter(topic.topic_id for _, topic in found)
    for row, topic in found:
        if named_twice[topic.topic_id] > 1:
            _refuse(
                row,
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an id that was already supplied.",
            )
    # At the same time, so that the metadata store combines their writes in few commits.
    await asyncio.gather(
        *(_delete(topics, row, topic, mutations) for row, topic in found if named_twice[topic.topic_id] == 1)
    )
    response.throttle_time_ms = mutations.throttle_ms()
    return response


def _find(
    context: RequestContext, wanted: DeleteTopicState, row: DeletableTopicResult
) -> TopicToDelete | None:
    try:
        if wanted.name is None:
            topic = context.cases.topics.to_delete_by_id(context.caller, wanted.topic_id)
            row.name = context.cases.kafka_names.shown(topic.name)
        else:
            topic = context.cases.topics.to_delete(context.caller, wanted.name)
            row.topic_id = topic.topic_id
    except (UnknownTopic, InvalidTopicName):
        # As in Kafka, an invalid topic name gets the same error as an unknown topic.
        _refuse(row, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_SUCH_NAME)
    except BrokerError as error:
        _refuse(row, error_code(error), str(error))
    else:
        return topic
    return None


async def _delete(
    topics: TopicCases, row: DeletableTopicResult, topic: TopicToDelete, mutations: Mutations
) -> None:
    try:
        await topics.delete(topic, mutations)
    except BrokerError as error:
        _refuse(row, error_code(error), str(error))


def _refuse(row: DeletableTopicResult, code: ErrorCode, message: str) -> None:
    row.error_code = code
    row.error_message = message


API = Api.of(codec, VERSIONS, handle)
