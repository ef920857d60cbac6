"""What the store counts; plain numbers that grow, read by the metrics page."""

from dataclasses import dataclass


@dataclass(slots=True)
class StoreCounters:
    appended_entries: int = 0
    appended_bytes: int = 0
    failed_entries: int = 0
    rounds: int = 0
    round_bytes: int = 0
    """Bytes written to the journal, padding included."""
    ring_waits: int = 0
    """Rounds that had to wait for a checkpoint to recycle a journal file."""
    journal_errors: int = 0
    flushes: int = 0
    flushed_bytes: int = 0
    flush_errors: int = 0
    checkpoints: int = 0
    checkpoint_errors: int = 0
    disk_reads: int = 0
    disk_read_bytes: int = 0
    corrupt_entries: int = 0
