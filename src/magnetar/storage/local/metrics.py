"""Metrics of the local ledger store: what it has done since it was opened, and what it keeps for other processes."""

from collections.abc import Callable
from typing import Final

from magnetar.base.metrics import Labels, Metrics
from magnetar.storage.local.counters import StoreCounters
from magnetar.storage.local.damage import Damage
from magnetar.storage.local.leases import Leases

_STORE_TOTALS: Final[tuple[tuple[str, str, Callable[[StoreCounters], int]], ...]] = (
    (
        "magnetar_store_appended_entries_total",
        "Entries appended to the ledgers.",
        lambda counters: counters.appended_entries,
    ),
    (
        "magnetar_store_appended_bytes_total",
        "Bytes of these entries.",
        lambda counters: counters.appended_bytes,
    ),
    (
        "magnetar_store_failed_entries_total",
        "Entries that could not be written.",
        lambda counters: counters.failed_entries,
    ),
    (
        "magnetar_store_rounds_total",
        "Synced writes of the journal: each takes along what all partitions had queued.",
        lambda counters: counters.rounds,
    ),
    (
        "magnetar_store_round_bytes_total",
        "Bytes written to the journal, padding included.",
        lambda counters: counters.round_bytes,
    ),
    (
        "magnetar_store_ring_waits_total",
        "Synced writes that waited until a journal file could be recycled.",
        lambda counters: counters.ring_waits,
    ),
    (
        "magnetar_store_journal_errors_total",
        "Journal writes that failed.",
        lambda counters: counters.journal_errors,
    ),
    (
        "magnetar_store_flushed_bytes_total",
        "Bytes written behind, from the journal to the ledgers' own files.",
        lambda counters: counters.flushed_bytes,
    ),
    (
        "magnetar_store_flush_errors_total",
        "Writes behind that failed.",
        lambda counters: counters.flush_errors,
    ),
    (
        "magnetar_store_checkpoints_total",
        "Checkpoints, after which journal files are recycled.",
        lambda counters: counters.checkpoints,
    ),
    (
        "magnetar_store_checkpoint_errors_total",
        "Checkpoints that failed.",
        lambda counters: counters.checkpoint_errors,
    ),
    (
        "magnetar_store_disk_reads_total",
        "Reads of ledger files.",
        lambda counters: counters.disk_reads,
    ),
    (
        "magnetar_store_disk_read_bytes_total",
        "Bytes of these reads.",
        lambda counters: counters.disk_read_bytes,
    ),
    (
        "magnetar_store_corrupt_entries_total",
        "Entries that failed their checksum and were not served.",
        lambda counters: counters.corrupt_entries,
    ),
)


def declare_store_metrics(metrics: Metrics, counters: StoreCounters, leases: Leases, damage: Damage) -> None:
    """Declare metrics of what the store has done since it was opened, and of what it keeps for other processes."""
    metrics.gauge(
        "magnetar_leases", "Leases that keep segment files for readers.", lambda: [((), len(leases))]
    )
    metrics.gauge(
        "magnetar_leased_segments_deleted",
        "Segment files of deleted ledgers that only leases keep.",
        lambda: [((), leases.waiting_count)],
    )
    metrics.gauge(
        "magnetar_leased_segments_deleted_bytes",
        "The space that those take.",
        lambda: [((), leases.waiting_bytes)],
    )

    metrics.gauge(
        "magnetar_store_damaged_ledger",
        "1 for each ledger in which a reader has found a damaged entry since the start.",
        lambda: [((str(ledger.ledger_id),), 1) for ledger, _ in damage.ledgers()],
        ("ledger",),
    )

    def reader(value: Callable[[StoreCounters], int]) -> Callable[[], list[tuple[Labels, float]]]:
        return lambda: [((), value(counters))]

    metrics.histogram(
        "magnetar_store_journal_write_seconds",
        "Synced writes of the journal: what every acknowledgement waits for.",
        bounds=counters.journal_write_s.bounds,
    ).adopt(counters.journal_write_s)
    for name, documentation, value in _STORE_TOTALS:
        metrics.total(name, documentation, reader(value))
