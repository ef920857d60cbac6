"""FindCoordinator: which node answers for a group or a transactional id.

Served: v0-6 (batched v4+).  Key types 0 (group) and 1 (transaction); share groups (2) are not served:
INVALID_REQUEST. Every key has a coordinator, whether or not its group exists.
"""

from typing import TYPE_CHECKING, Final

from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.leaders import endpoint_of
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "find_coordinator"
VERSIONS = (0, 6)
PIECES = Pieces("coordinator_keys", "", "coordinators")

_BATCHED_SINCE: Final = 4
_KEY_TYPES: Final = (0, 1)
_NO_SUCH_TYPE: Final = "This server coordinates groups (key type 0) and transactions (1) only."


def handle(context: "RequestContext", request: FindCoordinatorRequest) -> FindCoordinatorResponse:
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


def _find(context: "RequestContext", key: str, key_type: int) -> Coordinator:
    if key_type not in _KEY_TYPES:
        return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, _NO_SUCH_TYPE)
    node = context.broker.nodes.coordinator_of(key)
    endpoint = endpoint_of(context, node)
    return Coordinator(key, node.node_id, endpoint.host, endpoint.port, ErrorCode.NONE, None)
