"""CreateDelegationToken: a token with which clients log in as its owner (KIP-48), or as another user (KIP-373).

Served: v1-3 (v2 flexible; v3 names the owner and the requester).  It requires `delegation.token.secret.key`, and a
client that has logged in without a token.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.security.model import Principal
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import create_delegation_token as codec
from magnetar.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

VERSIONS = (1, 3)


async def handle(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester, owner = context.caller.principal, None
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [Principal(one.principal_type, one.principal_name) for one in request.renewers]
    try:
        token = await context.cases.delegation_tokens.create(
            context.caller, owner, renewers, request.max_lifetime_ms
        )
    except BrokerError as error:
        owner = owner or requester
        return CreateDelegationTokenResponse(
            error_code(error), owner.kind, owner.name, requester.kind, requester.name, -1, -1, -1
        )
    return CreateDelegationTokenResponse(
        ErrorCode.NONE,
        token.owner.kind,
        token.owner.name,
        token.requester.kind,
        token.requester.name,
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.token_id,
        token.hmac,
    )


API = Api.of(codec, VERSIONS, handle)
