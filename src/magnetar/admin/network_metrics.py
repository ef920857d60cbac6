"""Metrics of the connections of both protocols: the memory of requests and answers under way, and how long they wait
for others.
"""

from collections.abc import Callable

from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.metrics import Histogram, Labels, Metrics


def declare_network_metrics(
    metrics: Metrics,
    memory: MemoryBudget,
    stalls: Histogram,
    longest_stall_s: Callable[[], float],
    refused_count: Callable[[], int],
    tls_failure_count: Callable[[], int],
) -> None:
    """`stalls`: how long the event loop kept clients waiting; `refused_count`: connections over a limit;
    `tls_failure_count`: connections that ended in TLS.
    """

    def one(value: Callable[[], float]) -> Callable[[], list[tuple[Labels, float]]]:
        return lambda: [((), value())]

    metrics.gauge(
        "magnetar_connection_memory_bytes",
        "Bytes of requests under way and of responses that are not taken, over all connections.",
        one(lambda: memory.used),
    )
    metrics.gauge(
        "magnetar_connection_memory_peak_bytes",
        "The most that it has been.",
        one(lambda: memory.peak),
    )
    metrics.gauge(
        "magnetar_connection_memory_limit_bytes",
        "What it is kept within.",
        one(lambda: memory.bytes_max),
    )
    metrics.gauge(
        "magnetar_connection_memory_holders",
        "Connections that receive a large request, wait for memory for one, have not taken what was sent to them, are"
        " not read from because there is no memory, or whose large request waits for others of its kind.",
        lambda: [((what,), count) for what, count in memory.shares()],
        labels=("state",),
    )
    metrics.total(
        "magnetar_connections_cut_off_total",
        "Connections closed because they held memory and made no progress.",
        one(lambda: memory.cut_off_count),
    )
    metrics.total(
        "magnetar_connections_refused_total",
        "Connections refused because there were as many as may be.",
        one(lambda: refused_count()),
    )
    metrics.total(
        "magnetar_tls_failures_total",
        "Connections ended because TLS failed, mostly in the handshake.",
        one(lambda: tls_failure_count()),
    )
    metrics.histogram(
        "magnetar_loop_stall_seconds",
        "How long work waited for the event loop, looked at 40 times a second, or 4 while it is idle.",
        bounds=stalls.bounds,
    ).adopt(stalls)
    metrics.gauge(
        "magnetar_loop_stall_longest_seconds", "The longest of these since the start.", one(longest_stall_s)
    )
