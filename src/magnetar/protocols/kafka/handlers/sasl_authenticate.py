"""SaslAuthenticate: a mechanism's messages (KIP-152).

Served: v0-2; v1 says how long the session may last until the client logs in anew (KIP-368).  As with SaslHandshake, a
request that reaches this handler comes at the wrong time.
"""

from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import sasl_authenticate as codec
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

VERSIONS = (0, 2)


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)


API = Api.of(codec, VERSIONS, handle)
