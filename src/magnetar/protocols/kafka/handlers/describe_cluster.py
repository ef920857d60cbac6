"""DescribeCluster: the nodes and the cluster's id (KIP-700).

Served: v0-2 (v1 endpoint type, KIP-919; v2 fenced brokers, KIP-1073: there are none).  A client can ask for brokers
only, because no controller has listeners of its own.
"""

from typing import Final

from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.leaders import node_endpoints
from magnetar.protocols.kafka.permissions import bits
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import describe_cluster as codec
from magnetar.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

VERSIONS = (0, 2)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        message = (
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
        return DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message)
    if request.endpoint_type != _BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return DescribeClusterResponse(error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message)
    nodes = context.cases.nodes
    response = DescribeClusterResponse(
        cluster_id=nodes.cluster_id,
        controller_id=nodes.controller_id,
        brokers=node_endpoints(context, DescribeClusterBroker),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = bits(nodes.operations(context.caller))
    return response


API = Api.of(codec, VERSIONS, handle)
