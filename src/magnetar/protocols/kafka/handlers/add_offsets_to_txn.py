"""AddOffsetsToTxn: a group whose offsets a transaction is about to commit (KIP-98).

Served: v0-4 (v4 adds an error code that this server does not send).
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import PRODUCER_FENCED_SINCE, transaction_code
from magnetar.wire.kafka.messages import add_offsets_to_txn as codec
from magnetar.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

VERSIONS = (0, 4)


async def handle(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        error = await context.cases.transactions.add_group(
            context.caller, context.node, request.transactional_id, producer, request.group_id
        )
    except BrokerError as refusal:
        return AddOffsetsToTxnResponse(error_code=error_code(refusal))
    knows_fenced = context.api_version >= PRODUCER_FENCED_SINCE
    return AddOffsetsToTxnResponse(error_code=transaction_code(error, knows_fenced=knows_fenced))


API = Api.of(codec, VERSIONS, handle)
