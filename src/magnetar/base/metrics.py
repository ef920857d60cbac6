"""Numbers about the server, cheap to count and shown at /metrics.

The hot path holds a `Counter` and does `counter.value += n`; nothing else happens until it is read, which
`exposition.py` does.

Names are those of KoP and Pulsar where they exist, so that their dashboards work.  Many of those do not end
in `_total`, as Prometheus' counters must; such a name goes out as it is, and untyped.  Dashboards depend on names: each
is written whole where it is declared.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

# Seconds: a request served from memory takes under a millisecond, a long poll tens of seconds.
LATENCY_BUCKETS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
CHILDREN_MAX: Final = 100_000  # of one family: label values are topics and groups, which clients make up

Labels = tuple[str, ...]
Read = Callable[[], Iterable[tuple[Labels, float]]]
Child = TypeVar("Child")


class Counter:
    """Add to `value`; it never goes down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """Observations, counted by size."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Family(Generic[Child]):
    """The children of one metric, by label values.  Keep the child, not the labels, on a hot path."""

    def __init__(self, name: str, documentation: str, labels: Labels, make: Callable[[], Child]) -> None:
        self.name = name
        self.documentation = documentation
        self.label_names = labels
        self.children: dict[Labels, Child] = {}
        self._make = make
        self._overflow: Child | None = None

    def labels(self, *values: str) -> Child:
        """The child for these label values, in the order of the label names.

        Past `CHILDREN_MAX` children new ones share one that is not exported, so that clients cannot fill
        memory.
        """
        child = self.children.get(values)
        if child is not None:
            return child
        assert len(values) == len(self.label_names), (self.name, values)
        if len(self.children) >= CHILDREN_MAX:
            if self._overflow is None:
                self._overflow = self._make()
            return self._overflow
        child = self.children[values] = self._make()
        return child

    def adopt(self, child: Child, *values: str) -> None:
        """Show a child that a lower layer made and counts in by itself."""
        self.children[values] = child

    def remove(self, *values: str) -> None:
        """Forget a child, as when its topic is deleted.  Removing what is not there is harmless."""
        self.children.pop(values, None)


class Metrics:
    """Every metric of one server."""

    def __init__(self) -> None:
        self.counters: dict[str, Family[Counter]] = {}
        self.histograms: dict[str, Family[Histogram]] = {}
        self.gauges: dict[str, tuple[str, Labels, Read]] = {}
        self.totals: dict[str, tuple[str, Labels, Read]] = {}

    def counter(self, name: str, documentation: str, labels: Labels = ()) -> Family[Counter]:
        self._check_new(name)
        return self.counters.setdefault(name, Family(name, documentation, labels, Counter))

    def histogram(
        self, name: str, documentation: str, labels: Labels = (), bounds: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Family[Histogram]:
        self._check_new(name)
        return self.histograms.setdefault(
            name, Family(name, documentation, labels, lambda: Histogram(bounds))
        )

    def gauge(
        self,
        name: str,
        documentation: str,
        read: Read,
        labels: Labels = (),
    ) -> None:
        """A number that exists anyway: `read` yields (label values, value) whenever it is read."""
        self._check_new(name)
        self.gauges[name] = (documentation, labels, read)

    def total(self, name: str, documentation: str, read: Read, labels: Labels = ()) -> None:
        """As `gauge`, for a number that only grows."""
        self._check_new(name)
        self.totals[name] = (documentation, labels, read)

    def _check_new(self, name: str) -> None:
        declared = (self.counters, self.histograms, self.gauges, self.totals)
        taken = any(name in families for families in declared)
        assert not taken, f"metric {name} is declared twice"
