"""Metrics of conversions between the protocols; the label `reader` names the protocol of the result."""

from collections.abc import Callable, Iterable

from magnetar.base.metrics import Labels, Metrics
from magnetar.broker.interop.interop import Counters, Interop

_READER = ("reader",)


def declare_interop_metrics(metrics: Metrics, interop: Interop) -> None:
    """Declare metrics of what `interop` has converted since the start."""

    def both(
        kafka: Callable[[Counters], int], pulsar: Callable[[Counters], int]
    ) -> Callable[[], Iterable[tuple[Labels, float]]]:
        return lambda: [(("kafka",), kafka(interop.counters)), (("pulsar",), pulsar(interop.counters))]

    metrics.total(
        "magnetar_interop_entries_total",
        "Entries that were converted for readers of the other protocol.",
        both(lambda counters: counters.entries_to_kafka, lambda counters: counters.entries_to_pulsar),
        _READER,
    )
    metrics.total(
        "magnetar_interop_bytes_total",
        "Bytes of these entries, as their readers get them.",
        both(lambda counters: counters.bytes_to_kafka, lambda counters: counters.bytes_to_pulsar),
        _READER,
    )
    metrics.total(
        "magnetar_interop_undecodable_entries_total",
        "Entries of which readers of the other protocol get nothing, because they cannot be decoded.",
        both(lambda counters: counters.undecodable_to_kafka, lambda counters: counters.undecodable_to_pulsar),
        _READER,
    )
    metrics.total(
        "magnetar_interop_incomplete_chunked_messages_total",
        "Chunked messages of which Kafka clients get nothing, because chunks are missing.",
        lambda: [((), interop.counters.incomplete_chunked_messages)],
    )
    metrics.gauge(
        "magnetar_interop_cache_bytes",
        "Bytes of converted entries that are kept for the next reader.",
        lambda: [((), interop.cache_bytes_used)],
    )
