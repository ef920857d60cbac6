"""ExpireDelegationToken: end a token sooner, or at once (KIP-48).

Served: v1-2 (v2 flexible).  A negative period ends the token at once.
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import expire_delegation_token as codec
from magnetar.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

VERSIONS = (1, 2)


async def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        expires_ms = await context.cases.delegation_tokens.expire(
            context.caller, request.hmac, request.expiry_time_period_ms
        )
    except BrokerError as error:
        return ExpireDelegationTokenResponse(error_code(error), -1)
    return ExpireDelegationTokenResponse(ErrorCode.NONE, expires_ms)


API = Api.of(codec, VERSIONS, handle)
