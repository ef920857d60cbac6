"""FindCoordinator: which node coordinates a group or a transactional id.

Served: v0-6 (batched v4+).  Key types 0 (group) and 1 (transaction); share groups (2) are not served:
INVALID_REQUEST.  Every key has a coordinator, even if its group does not exist.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.leaders import endpoint_of
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import find_coordinator as codec
from magnetar.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

VERSIONS = (0, 6)
PIECES = Pieces("coordinator_keys", "", "coordinators")

_BATCHED_SINCE: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_NO_SUCH_TYPE: Final = "This server coordinates groups (key type 0) and transactions (1) only."


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.api_version >= _BATCHED_SINCE:
        rows = [_find(context, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=rows)
    row = _find(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=row.error_code,
        error_message=row.error_message,
        node_id=row.node_id,
        host=row.host,
        port=row.port,
    )


def _find(context: RequestContext, key: str, key_type: int) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, _NO_SUCH_TYPE)
    nodes = context.cases.nodes
    find = nodes.group_coordinator if key_type == _GROUP else nodes.transaction_coordinator
    try:
        node = find(context.caller, key)
    except BrokerError as refusal:
        return Coordinator(key, -1, "", -1, error_code(refusal), str(refusal))
    endpoint = endpoint_of(context, node)
    return Coordinator(key, node.node_id, endpoint.host, endpoint.port, ErrorCode.NONE, None)


API = Api.of(codec, VERSIONS, handle, PIECES)
