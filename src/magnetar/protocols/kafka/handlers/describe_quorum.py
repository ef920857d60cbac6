"""DescribeQuorum: the voters of the cluster's metadata (KIP-595, KIP-836, KIP-853).

Served: v0-2.  Metadata is in one store, not in a replicated log.  The answer shows a quorum of one: its only voter is
the node that Metadata names as the controller, and its log has no offsets to show.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.leaders import endpoint_of
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_quorum as codec
from magnetar.wire.kafka.messages.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    ReplicaState,
)

VERSIONS = (0, 2)

_METADATA_TOPIC: Final = "__cluster_metadata"
_METADATA_PARTITION: Final = 0


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    try:
        controller = context.cases.nodes.quorum(context.caller)
    except BrokerError as refusal:
        return DescribeQuorumResponse(error_code=error_code(refusal), error_message=str(refusal))
    response = DescribeQuorumResponse()
    for topic in request.topics:
        rows: list[DescribeQuorumResponsePartition] = []
        response.topics.append(DescribeQuorumResponseTopic(topic.topic_name, rows))
        for partition in topic.partitions:
            row = DescribeQuorumResponsePartition(partition_index=partition.partition_index)
            if (topic.topic_name, partition.partition_index) == (_METADATA_TOPIC, _METADATA_PARTITION):
                row.leader_id = controller.node_id
                row.current_voters = [ReplicaState(replica_id=controller.node_id)]
            else:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(row)
    endpoint = endpoint_of(context, controller)
    listener = DescribeQuorumListener(context.listener_name, endpoint.host, endpoint.port)
    response.nodes.append(DescribeQuorumNode(controller.node_id, [listener]))
    return response


API = Api.of(codec, VERSIONS, handle)
