"""DescribeQuorum: the voters behind the cluster's metadata (KIP-595, KIP-836, KIP-853).

Served: v0-2.  Metadata lies in one store, not in a replicated log: a quorum of one, whose only voter is the node that
clients are told is the controller, and whose log has no offsets to show.
"""

from typing import TYPE_CHECKING, Final

from magnetar.protocols.kafka.leaders import endpoint_of
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
    ReplicaState,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "describe_quorum"
VERSIONS = (0, 2)

_METADATA_TOPIC: Final = "__cluster_metadata"
_METADATA_PARTITION: Final = 0


def handle(context: "RequestContext", request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    controller_id = context.broker.nodes.controller_id
    response = DescribeQuorumResponse()
    for topic in request.topics:
        rows: list[DescribeQuorumResponsePartition] = []
        response.topics.append(DescribeQuorumResponseTopic(topic.topic_name, rows))
        for partition in topic.partitions:
            row = DescribeQuorumResponsePartition(partition_index=partition.partition_index)
            if (topic.topic_name, partition.partition_index) == (_METADATA_TOPIC, _METADATA_PARTITION):
                row.leader_id = controller_id
                row.current_voters = [ReplicaState(replica_id=controller_id)]
            else:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            rows.append(row)
    for node in context.broker.nodes.all:
        if node.node_id == controller_id:
            endpoint = endpoint_of(context, node)
            listener = DescribeQuorumListener(context.listener_name, endpoint.host, endpoint.port)
            response.nodes.append(DescribeQuorumNode(node.node_id, [listener]))
    return response
