"""GetTelemetrySubscriptions: which of its metrics a client is to push, and how often (KIP-714).

Served: v0.  A client without an id gets one.  `kafka-client-metrics` configures the subscriptions.  A client that no
subscription is for pushes nothing, and asks again after five minutes.  The server asks for numbers as totals.  A client
that connected before the first subscription existed pushes after it has connected again.
"""

from magnetar.base.errors import BrokerError
from magnetar.broker.telemetry.model import COMPRESSIONS, TELEMETRY_BYTES_MAX
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.messages import get_telemetry_subscriptions as codec
from magnetar.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    try:
        told = context.cases.telemetry.subscribe(context.telemetry_client, request.client_instance_id)
    except BrokerError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error_code(error))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=told.instance_id,
        subscription_id=told.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=told.wanted.interval_ms,
        telemetry_max_bytes=TELEMETRY_BYTES_MAX,
        delta_temporality=False,
        requested_metrics=list(told.wanted.metrics),
    )


API = Api.of(codec, VERSIONS, handle)
