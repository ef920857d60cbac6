"""What clients have pushed, in the server's own metrics."""

from magnetar.base.metrics import Metrics
from magnetar.broker.telemetry.clients import TelemetryClients


def declare_telemetry_metrics(metrics: Metrics, clients: TelemetryClients) -> None:
    metrics.gauge(
        "magnetar_client_metric",
        "What Kafka clients have pushed last of their own metrics.",
        clients.numbers,
        ("metric", "client_id", "client_instance_id", "attributes"),
    )
    metrics.gauge(
        "magnetar_telemetry_clients",
        "Kafka clients that have asked which metrics they are to push.",
        lambda: [((), len(clients))],
    )
    metrics.total(
        "magnetar_client_metrics_left_out_total",
        "Numbers that clients pushed and that found no room.",
        lambda: [((), clients.left_out)],
    )
