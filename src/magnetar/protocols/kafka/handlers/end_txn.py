"""EndTxn: commit or abort a transaction (KIP-98).

Served: v0-4 (v4 adds an error code that is not given here).  Answered when the end is visible in every partition; a
server that cannot write there for five seconds answers when the decision is durable, as Kafka does, and goes on trying.
"""

from typing import TYPE_CHECKING

from magnetar.broker.transactions.rules import Producer
from magnetar.protocols.kafka.transactions import PRODUCER_FENCED_SINCE, coordinates, transaction_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "end_txn"
VERSIONS = (0, 4)


async def handle(context: "RequestContext", request: EndTxnRequest) -> EndTxnResponse:
    if not coordinates(context, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    error = await context.broker.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        commit=request.committed,
    )
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    return EndTxnResponse(error_code=transaction_code(error, knows_fenced=knows_fenced))
