"""PushTelemetry: a client's metrics, as OTLP has them (KIP-714).

Served: v0.  The server's `/metrics` shows what a client has pushed until the client pushes again, or until three of its
intervals have passed, and at least a minute.  The server keeps gauges and sums: Kafka's clients push nothing else.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.telemetry.model import Push
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import push_telemetry as codec
from magnetar.wire.kafka.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

VERSIONS = (0, 0)


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        memoryview(bytes(request.metrics)),  # a thread decodes them after this request
    )
    try:
        await context.cases.telemetry.push(context.telemetry_client, push)
    except BrokerError as error:
        return PushTelemetryResponse(error_code=error_code(error))
    return PushTelemetryResponse()


API = Api.of(codec, VERSIONS, handle)
