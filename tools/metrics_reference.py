"""Write docs/reference/metrics.md from the metrics that the server declares: `python tools/metrics_reference.py`.

A test holds the page to the declarations; tests/metrics.txt holds their names, types and labels.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from magnetar.admin.app import create_app
from magnetar.admin.network_metrics import declare_network_metrics
from magnetar.base.clock import SystemClock
from magnetar.base.exposition import render as rendered
from magnetar.base.metrics import LATENCY_BUCKETS_S, Counter, Family, Histogram, Labels, Metrics, Read
from magnetar.broker.broker import Broker
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.settings import BrokerSettings
from magnetar.protocols.kafka.metrics import declare_kafka_metrics
from magnetar.protocols.pulsar.metrics import declare_pulsar_metrics
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.metrics import declare_store_metrics
from magnetar.testing.metadata import MemoryMetadataStore

FILE: Final = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"

INTRODUCTION: Final = """\
# Metrics

<!-- Made by tools/metrics_reference.py from the declarations in src/magnetar: change those. -->

`/metrics` shows these in Prometheus' text format. Names, types and labels do not change between versions.
[operating/running.md](../operating/running.md#health-and-metrics) says on which of them to set alarms.

| metric | type | labels | |
|---|---|---|---|
"""


class Declaration(NamedTuple):
    """One metric, as the page of a server has it."""

    name: str
    type: str
    labels: Labels
    meaning: str


class _Declared(Metrics):
    """Notes what is declared; nothing is read."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: dict[str, tuple[Labels, str]] = {}

    def counter(self, name: str, documentation: str, labels: Labels = ()) -> Family[Counter]:
        self.noted[name] = labels, documentation
        return super().counter(name, documentation, labels)

    def histogram(
        self, name: str, documentation: str, labels: Labels = (), bounds: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Family[Histogram]:
        self.noted[name] = labels, documentation
        return super().histogram(name, documentation, labels, bounds)

    def gauge(self, name: str, documentation: str, read: Read, labels: Labels = ()) -> None:
        self.noted[name] = labels, documentation
        super().gauge(name, documentation, lambda: [], labels)

    def total(self, name: str, documentation: str, read: Read, labels: Labels = ()) -> None:
        self.noted[name] = labels, documentation
        super().total(name, documentation, lambda: [], labels)


def declared() -> list[Declaration]:
    """All metrics of a server, by name."""
    metrics = _Declared()
    unread: Any = None  # the parts whose numbers nothing reads here
    declare_kafka_metrics(metrics, unread, lambda: 0)
    declare_pulsar_metrics(metrics, unread)
    declare_network_metrics(metrics, unread, Histogram((1.0,)), lambda: 0.0, lambda: 0, lambda: 0)
    declare_store_metrics(metrics, StoreCounters(), unread, unread)

    async def main() -> None:
        nodes = Nodes([Node(1)])
        broker = Broker(BrokerSettings(), unread, MemoryMetadataStore(), SystemClock(), nodes)
        create_app(broker.cases, metrics)

    asyncio.run(main())
    lines = [line.split(" ") for line in rendered(metrics).decode().splitlines()]
    types = {words[2]: words[3] for words in lines if words[:2] == ["#", "TYPE"]}
    assert types.keys() == metrics.noted.keys()
    return [Declaration(name, types[name], *metrics.noted[name]) for name in sorted(types)]


def render() -> str:
    """The whole page."""
    rows = [
        f"| `{one.name}` | {one.type} | {', '.join(one.labels)} | {one.meaning.replace('|', chr(92) + '|')} |\n"
        for one in declared()
    ]
    return INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    FILE.write_text(render())
