"""What the store counts: plain numbers that only grow.  The metrics page reads them."""

from dataclasses import dataclass, field
from typing import Final

from magnetar.base.metrics import Histogram

# In seconds.  A synced write takes 0.2 to 1 ms on an idle SSD, and 10 ms on a spinning disk; more means that the disk
# stalls.
WRITE_BUCKETS_S: Final = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
)  # fmt: skip


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
    journal_write_s: Histogram = field(default_factory=lambda: Histogram(WRITE_BUCKETS_S))
    """How long each round's synced write took.  Every acknowledgement waits for one."""
    flushes: int = 0
    flushed_bytes: int = 0
    flush_errors: int = 0
    checkpoints: int = 0
    checkpoint_errors: int = 0
    disk_reads: int = 0
    disk_read_bytes: int = 0
    corrupt_entries: int = 0
