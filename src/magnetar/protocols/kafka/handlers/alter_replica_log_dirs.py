"""AlterReplicaLogDirs: move replicas between a broker's data directories (KIP-113).

Served: v1-2.  There is one directory.  A request for that directory succeeds and moves nothing; another directory is
not found.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.usecases.nodes import ReplicaMoves
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import alter_replica_log_dirs as codec
from magnetar.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

VERSIONS = (1, 2)


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    moves: ReplicaMoves | ErrorCode
    try:
        moves = context.cases.nodes.to_move_replicas(context.caller)
    except BrokerError as refusal:
        moves = error_code(refusal)
    response = AlterReplicaLogDirsResponse()
    for wanted in request.dirs:
        for topic in wanted.topics:
            rows = [
                AlterReplicaLogDirPartitionResult(
                    index, _moved(context, moves, wanted.path, topic.name, index)
                )
                for index in topic.partitions
            ]
            response.results.append(AlterReplicaLogDirTopicResult(topic.name, rows))
    return response


def _moved(
    context: RequestContext, moves: ReplicaMoves | ErrorCode, path: str, topic_name: str, index: int
) -> ErrorCode:
    if isinstance(moves, ErrorCode):
        return moves
    try:
        moves.to_folder(context.node, path, topic_name, index)
    except BrokerError as error:
        return error_code(error)
    return ErrorCode.NONE


API = Api.of(codec, VERSIONS, handle)
