"""Metrics of the Pulsar door: connections, commands, bytes."""

from collections.abc import Callable, Iterator

from magnetar.base.metrics import Labels, Metrics
from magnetar.protocols.pulsar.service import PulsarService
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand


def declare_pulsar_metrics(metrics: Metrics, service: PulsarService) -> None:
    def commands() -> Iterator[tuple[Labels, float]]:
        for kind, count in list(service.command_counts.items()):
            yield (BaseCommand.Type.Name(kind).lower(),), count

    def one(value: Callable[[], float]) -> Callable[[], list[tuple[Labels, float]]]:
        return lambda: [((), value())]

    metrics.gauge(
        "pulsar_active_connections", "Open Pulsar connections.", one(lambda: float(len(service.sessions)))
    )
    metrics.total(
        "magnetar_pulsar_commands_total", "Commands from Pulsar clients, by kind.", commands, ("command",)
    )
    metrics.total(
        "magnetar_pulsar_received_bytes_total",
        "Bytes received from Pulsar clients.",
        one(lambda: service.received_bytes),
    )
    metrics.total(
        "magnetar_pulsar_sent_bytes_total", "Bytes sent to Pulsar clients.", one(lambda: service.sent_bytes)
    )
    metrics.gauge(
        "magnetar_pulsar_unanswered_bytes",
        "Bytes of messages from Pulsar clients that are not stored yet.",
        one(lambda: service.queued_bytes),
    )
