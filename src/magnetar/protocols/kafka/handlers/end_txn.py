"""EndTxn: commit or abort a transaction (KIP-98).

Served: v0-4 (v4 adds an error code that is not given here).  Answered when the end is visible in every partition; a
server that cannot write there for five seconds answers when the decision is durable, as Kafka does, and goes on trying.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import PRODUCER_FENCED_SINCE, transaction_code
from magnetar.wire.kafka.messages import end_txn as codec
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSIONS = (0, 4)


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    try:
        error = await context.cases.transactions.end(
            context.caller,
            context.node,
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commit=request.committed,
        )
    except BrokerError as refusal:
        return EndTxnResponse(error_code=error_code(refusal))
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    return EndTxnResponse(error_code=transaction_code(error, knows_fenced=knows_fenced))


API = Api.of(codec, VERSIONS, handle)
