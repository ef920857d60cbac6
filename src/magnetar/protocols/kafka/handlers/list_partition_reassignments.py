"""ListPartitionReassignments: partitions that are moving from broker to broker (KIP-455).

Served: v0.  The list is always empty: brokers share one store, and no data moves between them.
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import list_partition_reassignments as codec
from magnetar.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        context.cases.nodes.reassignments(context.caller)
    except BrokerError as refusal:
        return ListPartitionReassignmentsResponse(error_code=error_code(refusal), error_message=str(refusal))
    return ListPartitionReassignmentsResponse(error_message=None)


API = Api.of(codec, VERSIONS, handle)
