"""RenewDelegationToken: extend a token's validity (KIP-48).

Served: v1-2 (v2 flexible).
"""

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import renew_delegation_token as codec
from magnetar.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

VERSIONS = (1, 2)


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        expires_ms = await context.cases.delegation_tokens.renew(
            context.caller, request.hmac, request.renew_period_ms
        )
    except BrokerError as error:
        return RenewDelegationTokenResponse(error_code(error), -1)
    return RenewDelegationTokenResponse(ErrorCode.NONE, expires_ms)


API = Api.of(codec, VERSIONS, handle)
