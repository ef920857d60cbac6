"""SaslHandshake: which mechanism a client uses to log in (KIP-43).

Served: v0-1.  The login handles this API before other requests (`protocols/kafka/login.py`).  A request that reaches
this handler comes at the wrong time: the client need not log in, or has logged in without an end or within the last
second.
"""

from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import sasl_handshake as codec
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

VERSIONS = (0, 1)


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api.of(codec, VERSIONS, handle)
