"""DescribeDelegationToken: the tokens that a client owns, may renew, or may see (KIP-48, KIP-373).

Served: v1-3 (v2 flexible; v3 names the requester of each).  Expired tokens are listed until the server removes them.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.security.model import DelegationToken, Principal
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.large import ELEMENTS_AT_ONCE, Large
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import describe_delegation_token as codec
from magnetar.wire.kafka.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

VERSIONS = (1, 3)


async def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse | Large:
    owners = None
    if request.owners is not None:
        owners = {Principal(one.principal_type, one.principal_name) for one in request.owners}
    try:
        found = await context.cases.delegation_tokens.describe(context.caller, owners)
    except BrokerError as error:
        return DescribeDelegationTokenResponse(error_code(error))
    tokens: list[DescribedDelegationToken] = []
    await context.service.large.each(found, lambda one: tokens.append(_described(one)))
    response = DescribeDelegationTokenResponse(tokens=tokens)
    element_count = len(tokens) + sum(len(one.renewers) for one in tokens)
    return Large(response) if element_count > ELEMENTS_AT_ONCE else response


def _described(token: DelegationToken) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        token.owner.kind,
        token.owner.name,
        token.requester.kind,
        token.requester.name,
        token.issued_ms,
        token.expires_ms,
        token.max_ms,
        token.token_id,
        token.hmac,
        [DescribedDelegationTokenRenewer(one.kind, one.name) for one in token.renewers],
    )


API = Api.of(codec, VERSIONS, handle)
