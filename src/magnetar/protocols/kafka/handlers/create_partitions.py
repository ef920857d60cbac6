"""CreatePartitions: add partitions to existing topics; they cannot be removed again.

Served: v0-3.  Each topic succeeds or fails by itself.  Beyond the client's quota of mutations the server refuses (v3,
THROTTLING_QUOTA_EXCEEDED), or the client waits afterwards (KIP-599).
"""

from collections import Counter
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.errors import UnknownTopic
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import create_partitions as codec
from magnetar.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

VERSIONS = (0, 3)

_STRICT_SINCE: Final = 3


async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    response = CreatePartitionsResponse()
    mutations = context.meter.mutations(is_strict=context.api_version >= _STRICT_SINCE)
    counts = Counter(topic.name for topic in request.topics)
    for wanted in {topic.name: topic for topic in request.topics}.values():
        row = CreatePartitionsTopicResult(wanted.name)
        response.results.append(row)
        if counts[wanted.name] > 1:
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
            continue
        try:
            replicas = None
            if wanted.assignments is not None:
                replicas = [one.broker_ids for one in wanted.assignments]
            await context.cases.topics.grow(
                context.caller,
                wanted.name,
                wanted.count,
                replicas,
                mutations,
                validate_only=request.validate_only,
            )
        except (UnknownTopic, InvalidTopicName):
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = f"The topic {wanted.name} does not exist."
        except BrokerError as error:
            row.error_code, row.error_message = error_code(error), str(error)
    response.throttle_time_ms = mutations.throttle_ms()
    return response


API = Api.of(codec, VERSIONS, handle)
