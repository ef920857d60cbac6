"""The names of metrics, their types and labels are those that dashboards were made for."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from magnetar.admin.app import create_app
from magnetar.admin.network_metrics import declare_network_metrics
from magnetar.base.exposition import render
from magnetar.base.metrics import LATENCY_BUCKETS_S, Counter, Family, Histogram, Labels, Metrics, Read
from magnetar.broker.broker import Broker
from magnetar.protocols.kafka.metrics import declare_kafka_metrics
from magnetar.protocols.pulsar.metrics import declare_pulsar_metrics
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.metrics import declare_store_metrics

# A new metric is a new line there; a line that changes or goes breaks a dashboard.
NAMES = Path(__file__).parents[2] / "metrics.txt"


class Declared(Metrics):
    """What is declared, with its labels; nothing is read."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[str, Labels] = {}

    def counter(self, name: str, documentation: str, labels: Labels = ()) -> Family[Counter]:
        self.labels[name] = labels
        return super().counter(name, documentation, labels)

    def histogram(
        self, name: str, documentation: str, labels: Labels = (), bounds: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Family[Histogram]:
        self.labels[name] = labels
        return super().histogram(name, documentation, labels, bounds)

    def gauge(self, name: str, documentation: str, read: Read, labels: Labels = ()) -> None:
        self.labels[name] = labels
        super().gauge(name, documentation, lambda: [], labels)

    def total(self, name: str, documentation: str, read: Read, labels: Labels = ()) -> None:
        self.labels[name] = labels
        super().total(name, documentation, lambda: [], labels)


def test_metrics_have_the_names_types_and_labels_that_are_known(make_broker: Callable[[], Broker]) -> None:
    metrics = Declared()
    unread: Any = None
    declare_kafka_metrics(metrics, unread, lambda: 0)
    declare_pulsar_metrics(metrics, unread)
    declare_network_metrics(metrics, unread, Histogram((1.0,)), lambda: 0.0, lambda: 0, lambda: 0)
    declare_store_metrics(metrics, StoreCounters(), unread, unread)

    async def main() -> None:
        create_app(make_broker().cases, metrics)

    asyncio.run(main())
    types = dict(
        line.split(" ")[2:] for line in render(metrics).decode().splitlines() if line.startswith("# TYPE ")
    )
    assert types.keys() == metrics.labels.keys()
    found = [f"{name} {types[name]} {','.join(labels)}".strip() for name, labels in metrics.labels.items()]
    assert sorted(found) == NAMES.read_text().splitlines()
