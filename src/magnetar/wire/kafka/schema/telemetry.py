"""Metrics that clients send to the broker (KIP-714): GetTelemetrySubscriptions, PushTelemetry."""

from typing import Final

from magnetar.wire.kafka.schema.model import BOOLEAN, BYTES, INT8, INT16, INT32, STRING, UUID, Api, F

GET_TELEMETRY_SUBSCRIPTIONS: Final = Api(
    name="GetTelemetrySubscriptions",
    key=71,
    versions="0",
    flexible="0+",
    request=(F("client_instance_id", UUID),),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("client_instance_id", UUID),
        F("subscription_id", INT32),
        F("accepted_compression_types", [INT8]),
        F("push_interval_ms", INT32),
        F("telemetry_max_bytes", INT32),
        F("delta_temporality", BOOLEAN),
        F("requested_metrics", [STRING]),
    ),
)

PUSH_TELEMETRY: Final = Api(
    name="PushTelemetry",
    key=72,
    versions="0",
    flexible="0+",
    request=(
        F("client_instance_id", UUID),
        F("subscription_id", INT32),
        F("terminating", BOOLEAN),
        F("compression_type", INT8),
        F("metrics", BYTES),
    ),
    response=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
    ),
)
