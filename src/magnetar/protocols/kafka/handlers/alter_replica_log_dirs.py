"""AlterReplicaLogDirs: move replicas between a broker's data directories (KIP-113).

Served: v1-2.  There is one directory.  A partition that is asked to be where it is stays there; another directory is
not found.
"""

from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "alter_replica_log_dirs"
VERSIONS = (1, 2)


def handle(context: "RequestContext", request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    response = AlterReplicaLogDirsResponse()
    for wanted in request.dirs:
        is_here = wanted.path == context.broker.settings.data_dir
        for topic in wanted.topics:
            rows = [
                AlterReplicaLogDirPartitionResult(
                    index, _presence(context, topic.name, index) if is_here else ErrorCode.LOG_DIR_NOT_FOUND
                )
                for index in topic.partitions
            ]
            response.results.append(AlterReplicaLogDirTopicResult(topic.name, rows))
    return response


def _presence(context: "RequestContext", topic_name: str, index: int) -> ErrorCode:
    broker = context.broker
    try:
        topic = broker.kafka_topic(topic_name)
    except BrokerError as error:
        return error_code(error)
    if not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if context.node.node_id not in topic.replicas[index]:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
