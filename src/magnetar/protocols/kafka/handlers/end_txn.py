"""EndTxn: commit or abort a transaction (KIP-98).

Served: v0-5.  v4 adds an error code that this server does not send.  With v5 the answer says under which id and epoch
the producer continues (KIP-890), and an abort succeeds also if nothing is open.  The server answers when the end is
visible in every partition.  If it cannot write there for five seconds, it answers when the decision is durable, as
Kafka does, and continues to try.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import PRODUCER_FENCED_SINCE, transaction_code
from magnetar.wire.kafka.messages import end_txn as codec
from magnetar.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

VERSIONS = (0, 5)

_RENEWS_SINCE: Final = 5


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    try:
        ended = await context.cases.transactions.end(
            context.caller,
            context.node,
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commit=request.committed,
            renews=context.api_version >= _RENEWS_SINCE,
        )
    except BrokerError as refusal:
        return EndTxnResponse(error_code=error_code(refusal))
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    code = transaction_code(ended.error, knows_fenced=knows_fenced)
    return EndTxnResponse(error_code=code, producer_id=ended.producer_id, producer_epoch=ended.epoch)


API = Api.of(codec, VERSIONS, handle)
