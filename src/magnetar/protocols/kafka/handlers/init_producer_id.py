"""InitProducerId: a producer id for an idempotent producer (KIP-98, KIP-360).

Served: v0-5.  Every idempotent producer that asks gets a new id, as from Kafka; its epochs are checked when it writes.
A transactional id is refused: transactions are not served here yet.
"""

from typing import TYPE_CHECKING

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "init_producer_id"
VERSIONS = (0, 5)


async def handle(context: "RequestContext", request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # The one code that every client treats as final; INVALID_REQUEST would be retried by some.
        code = (
            ErrorCode.INVALID_REQUEST
            if not request.transactional_id
            else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    try:
        producer_id = await context.broker.producer_ids.allocate()
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error_code(error), producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
