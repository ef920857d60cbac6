"""Metrics of the Kafka door: requests, bytes and connections, with KoP's names where it has one."""

from collections.abc import Callable, Iterator

from magnetar.base.metrics import Labels, Metrics
from magnetar.protocols.kafka.service import KafkaService


def declare_kafka_metrics(
    metrics: Metrics, service: KafkaService, connection_count: Callable[[], int]
) -> None:
    """Declare the metrics; `connection_count` returns the number of open client connections."""

    def requests() -> Iterator[tuple[Labels, float]]:
        for key, count in list(service.request_counts.items()):
            yield (service.apis[key].name,), count

    def one(value: Callable[[], float]) -> Callable[[], list[tuple[Labels, float]]]:
        return lambda: [((), value())]

    metrics.gauge(
        "kop_server_ALIVE_CHANNEL_COUNT", "Open connections.", one(lambda: float(connection_count()))
    )
    metrics.gauge("kop_server_NETWORK_TOTAL_BYTES_IN", "Bytes received.", one(lambda: service.received_bytes))
    metrics.total("kop_server_NETWORK_TOTAL_BYTES_OUT", "Bytes sent.", one(lambda: service.sent_bytes))
    metrics.gauge(
        "kop_server_REQUEST_QUEUE_SIZE",
        "Bytes of requests not answered yet.",
        one(lambda: service.queued_bytes),
    )
    metrics.gauge(
        "magnetar_kafka_fetches_waiting",
        "Fetches that wait for records.",
        one(lambda: len(service.fetches_waiting)),
    )
    metrics.total(
        "magnetar_kafka_logins_failed_total",
        "Logins of clients that came to nothing.",
        one(lambda: service.logins.failed_count),
    )
    metrics.total("magnetar_kafka_requests_total", "Requests, by API.", requests, ("request",))
