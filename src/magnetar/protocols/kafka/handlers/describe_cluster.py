"""DescribeCluster: the nodes and the cluster's id (KIP-700).

Served: v0-2 (v1 endpoint type, KIP-919; v2 fenced brokers, KIP-1073: there are none).  Only brokers can be asked for:
there are no controllers with listeners of their own.
"""

from typing import TYPE_CHECKING, Final

from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.permissions import CLUSTER_OPERATIONS
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "describe_cluster"
VERSIONS = (0, 2)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(context: "RequestContext", request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != _BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    broker = context.broker
    response = DescribeClusterResponse(
        cluster_id=broker.settings.cluster_id,
        controller_id=broker.nodes.controller_id,
        brokers=node_endpoints(context, DescribeClusterBroker),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
