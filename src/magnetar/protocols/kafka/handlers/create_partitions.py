"""CreatePartitions: more partitions for topics that exist; there is no way back.

Served: v0-3.  Every topic that was asked for is answered; each succeeds or fails by itself.
"""

from collections import Counter
from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.errors import UnknownTopic
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "create_partitions"
VERSIONS = (0, 3)


async def handle(context: "RequestContext", request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    response = CreatePartitionsResponse()
    counts = Counter(topic.name for topic in request.topics)
    for wanted in {topic.name: topic for topic in request.topics}.values():
        row = CreatePartitionsTopicResult(wanted.name)
        response.results.append(row)
        if counts[wanted.name] > 1:
            row.error_code, row.error_message = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
            continue
        try:
            await _grow(context.broker, wanted, request.validate_only)
        except (UnknownTopic, InvalidTopicName):
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = f"The topic {wanted.name} does not exist."
        except BrokerError as error:
            row.error_code, row.error_message = error_code(error), str(error)
    return response


async def _grow(broker: "Broker", wanted: CreatePartitionsTopic, validate_only: bool) -> None:
    topic = broker.kafka_topic(wanted.name)
    replicas = None
    if wanted.assignments is not None:
        replicas = [one.broker_ids for one in wanted.assignments]
    async with broker.topics.changing(topic):
        planned = broker.topics.plan_partitions(topic, wanted.count, replicas)
        if not validate_only:
            await broker.topics.add_partitions(topic, planned)
