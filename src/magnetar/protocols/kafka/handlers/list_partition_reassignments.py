"""ListPartitionReassignments: partitions that are moving from broker to broker (KIP-455).

Served: v0.  None ever is: brokers share one store, and no data moves between them.
"""

from typing import TYPE_CHECKING

from magnetar.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "list_partition_reassignments"
VERSIONS = (0, 0)


def handle(
    context: "RequestContext", request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
