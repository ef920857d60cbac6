"""Which node leads which partition, with its address for clients of a given listener."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from magnetar.broker.cluster.model import Endpoint, Node
from magnetar.broker.usecases.handles import PartitionHandle
from magnetar.protocols.kafka.context import RequestContext
from magnetar.wire.kafka.error_codes import ErrorCode

Row = TypeVar("Row")
NO_NODE: Final = -1
_NONE: Final = ErrorCode.NONE


def endpoint_of(context: RequestContext, node: Node) -> Endpoint:
    """The address of `node` on the listener that the client uses."""
    endpoint = node.advertised[context.listener_name]
    return endpoint if endpoint.host else replace(endpoint, host=context.local_host)


def node_endpoints(context: RequestContext, row: Callable[[int, str, int, str | None], Row]) -> list[Row]:
    """All nodes as rows of a response: `row(node_id, host, port, rack)`.  A node of another broker may lack the
    listener that the client uses.
    """
    rows = []
    for node in context.cases.nodes.all:
        if context.listener_name not in node.advertised:
            continue
        endpoint = endpoint_of(context, node)
        rows.append(row(node.node_id, endpoint.host, endpoint.port, node.rack))
    return rows


def leader_error(
    context: RequestContext, partition: PartitionHandle, current_leader_epoch: int = -1
) -> ErrorCode:
    """NONE if this node leads the partition in the epoch that the client sends (-1: in any), else the error
    (KIP-320).
    """
    if partition.leader_id != context.node.node_id:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch >= 0:
        if current_leader_epoch < partition.log.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current_leader_epoch > partition.log.leader_epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    return _NONE
