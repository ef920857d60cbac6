"""InitProducerId: a producer id for an idempotent or a transactional producer (KIP-98, KIP-360).

Served: v0-5 (v6, for the two-phase commit of KIP-939, is not served, as in Kafka 4.3).  Every idempotent producer
that asks gets a new id, as from Kafka; its epochs are checked when it writes.  A transactional id keeps its producer
id and gets the next epoch, after the server has aborted what its last producer left open.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.transactions.model import Producer
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.protocols.kafka.transactions import transaction_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import init_producer_id as codec
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

VERSIONS = (0, 5)

_PRODUCER_FENCED_SINCE: Final = 4


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return await _transactional(context, request.transactional_id, request)
    try:
        producer_id = await context.cases.transactions.allocate_producer_id(context.caller)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error_code(error), producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _transactional(
    context: RequestContext, transactional_id: str, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    claimed = Producer(request.producer_id, request.producer_epoch)
    if (claimed.producer_id < 0) != (claimed.epoch < 0):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        answer = await context.cases.transactions.init_producer(
            context.caller,
            context.node,
            transactional_id,
            request.transaction_timeout_ms,
            claimed if claimed.producer_id >= 0 else None,
        )
    except BrokerError as refusal:
        return InitProducerIdResponse(error_code=error_code(refusal), producer_epoch=-1)
    knows_fenced = context.api_version >= _PRODUCER_FENCED_SINCE
    code = transaction_code(answer.error, knows_fenced=knows_fenced)
    return InitProducerIdResponse(
        error_code=code, producer_id=answer.producer_id, producer_epoch=answer.epoch
    )


API = Api.of(codec, VERSIONS, handle)
