"""AddOffsetsToTxn: a group whose offsets a transaction is about to commit (KIP-98).

Served: v0-4 (v4 adds an error code that is not given here).
"""

from typing import TYPE_CHECKING

from magnetar.broker.transactions.rules import Producer
from magnetar.protocols.kafka.transactions import PRODUCER_FENCED_SINCE, coordinates, transaction_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "add_offsets_to_txn"
VERSIONS = (0, 4)


async def handle(context: "RequestContext", request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    if not coordinates(context, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    error = await context.broker.transactions.add_group(
        request.transactional_id, Producer(request.producer_id, request.producer_epoch), request.group_id
    )
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    return AddOffsetsToTxnResponse(error_code=transaction_code(error, knows_fenced=knows_fenced))
