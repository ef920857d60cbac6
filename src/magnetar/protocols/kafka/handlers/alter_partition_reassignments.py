"""AlterPartitionReassignments: move partitions from broker to broker, or stop moving them (KIP-455).

Served: v0-1 (v1 may forbid another number of replicas, KIP-860).  Brokers share one store, and no data moves between
them: a request for a partition's current place succeeds, any other place is INVALID_REPLICA_ASSIGNMENT.  There is
nothing to stop: NO_REASSIGNMENT_IN_PROGRESS.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.usecases.nodes import ReplicaMoves
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import alter_partition_reassignments as codec
from magnetar.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

VERSIONS = (0, 1)


def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    try:
        moves = context.cases.nodes.to_move_replicas(context.caller)
    except BrokerError as refusal:
        response.error_code, response.error_message = error_code(refusal), str(refusal)
        return response
    response.responses = [
        ReassignableTopicResponse(topic.name, [_moved(moves, topic.name, one) for one in topic.partitions])
        for topic in request.topics
    ]
    return response


def _moved(
    moves: ReplicaMoves, topic_name: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    index = wanted.partition_index
    try:
        moves.reassign(topic_name, index, wanted.replicas)
    except BrokerError as refusal:
        return ReassignablePartitionResponse(index, error_code(refusal), str(refusal))
    return ReassignablePartitionResponse(index, error_message=None)


API = Api.of(codec, VERSIONS, handle)
