"""SaslHandshake: which mechanism a client logs in by (KIP-43).

Served: v0-1.  A login is handled before requests are (`protocols/kafka/login.py`).  What gets here comes at the wrong
time: the client has logged in for good, or within the last second, or need not.
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
