"""Metrics of Pulsar's transactions, with the names of Pulsar's brokers; totals count from the start."""

from collections.abc import Callable, Iterator
from typing import Final

from magnetar.base.metrics import Labels, Metrics
from magnetar.broker.log.pulsar_transactions import COORDINATOR
from magnetar.broker.transactions.pulsar_coordinator import PulsarTransactions, TransactionCounts

_COORDINATOR: Final = ("coordinator_id",)
_LABELS: Final = (str(COORDINATOR),)


def declare_transaction_metrics(metrics: Metrics, transactions: PulsarTransactions) -> None:
    """Declare the metrics that are read from `transactions`."""

    def counted(
        count: Callable[[TransactionCounts], int],
    ) -> Callable[[], Iterator[tuple[Labels, float]]]:
        def read() -> Iterator[tuple[Labels, float]]:
            yield _LABELS, count(transactions.counts)

        return read

    metrics.gauge(
        "pulsar_txn_active_count",
        "Transactions of Pulsar's that have not ended.",
        lambda: [(_LABELS, len(transactions.all))],
        _COORDINATOR,
    )
    for name, documentation, count in (
        ("pulsar_txn_created_total", "Transactions that were begun.", lambda counts: counts.created),
        ("pulsar_txn_committed_total", "Transactions that were committed.", lambda counts: counts.committed),
        ("pulsar_txn_aborted_total", "Transactions that were aborted.", lambda counts: counts.aborted),
        ("pulsar_txn_timeout_total", "Transactions that took too long.", lambda counts: counts.timed_out),
        ("pulsar_txn_append_log_total", "Records of transactions written.", lambda counts: counts.written),
    ):
        metrics.total(name, documentation, counted(count), _COORDINATOR)
