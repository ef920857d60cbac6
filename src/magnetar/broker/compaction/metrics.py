"""Metrics of compaction."""

from collections.abc import Callable
from typing import Protocol

from magnetar.base.metrics import Labels, Metrics
from magnetar.broker.compaction.beside import CompactorBeside
from magnetar.broker.compaction.compactor import Compactor


class Looks(Protocol):
    """The pass that decides which logs are compacted."""

    @property
    def damaged_count(self) -> int: ...


def declare_compaction_metrics(
    metrics: Metrics, compactor: Compactor, beside: CompactorBeside, looks: Looks
) -> None:
    """Declare metrics of all logs together, since the start."""
    counts = compactor.counts

    def one(value: Callable[[], float]) -> Callable[[], list[tuple[Labels, float]]]:
        return lambda: [((), value())]

    total = metrics.total
    total("magnetar_compaction_runs_total", "Logs that were compacted, each time.", one(lambda: counts.runs))
    total(
        "magnetar_compaction_failures_total",
        "Times that a log could not be compacted, or not to the end.",
        one(lambda: counts.failures),
    )
    total(
        "magnetar_compaction_read_bytes_total",
        "Stored bytes that compaction has read: those for the keys, and those that were rewritten.",
        one(lambda: counts.read_bytes),
    )
    total(
        "magnetar_compaction_written_bytes_total",
        "Stored bytes that compaction has written.",
        one(lambda: counts.written_bytes),
    )
    total(
        "magnetar_compaction_won_bytes_total",
        "Stored bytes by which logs became smaller.",
        one(lambda: counts.won_bytes),
    )
    total(
        "magnetar_compaction_removed_records_total",
        "Records and markers of transactions that compaction has taken out.",
        one(lambda: counts.removed_records),
    )
    total("magnetar_compaction_seconds_total", "Time that compaction took.", one(lambda: counts.seconds))
    metrics.gauge(
        "magnetar_compaction_left_bytes",
        "Stored bytes that the runs which are under way have still to look at; 0 when there is none.",
        one(lambda: compactor.left_bytes + beside.left_bytes),
    )
    metrics.gauge(
        "magnetar_compaction_unreadable_logs",
        "Logs that are not compacted, as an entry of theirs cannot be read.",
        one(lambda: looks.damaged_count),
    )
