"""What an operator may set for the local ledger store, and the bounds within which it makes sense."""

from dataclasses import dataclass

from magnetar.base.errors import ConfigError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.wire.stored import ENTRY_BYTES_MAX

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LocalStoreSettings:
    """All sizes are in bytes.  Raises ConfigError if the values contradict each other."""

    journal_sync_data: bool = True
    """True: acknowledged means on disk.  False: the journal is written but not synced (Kafka's habit)."""

    journal_file_bytes: int = 128 * MIB
    journal_file_count: int = 4
    """The ring is preallocated; a checkpoint starts when half of it is in use."""

    round_bytes_max: int = 8 * MIB
    """The most that one synced write carries; a single larger entry gets a round of its own."""

    checkpoint_entries_max: int = 200_000
    """A checkpoint starts after this many entries at the latest, which limits the time that a restart takes."""

    flush_bytes: int = 1 * MIB
    """A ledger is written to its segment when this much of it is only in memory and in the journal."""

    read_step_bytes: int = 2 * MIB
    read_memory_bytes: int = 128 * MIB
    """The size of recycled memory, and the most that is kept for readers that come back."""
    read_threads: int = 2
    retry_s: float = 1.0
    """How long to wait before a failed write-behind (disk full) is tried again."""

    def __post_init__(self) -> None:
        for name in ("journal_file_bytes", "round_bytes_max", "flush_bytes", "read_step_bytes"):
            value = getattr(self, name)
            if value < BLOCK_BYTES or value % BLOCK_BYTES:
                raise ConfigError(f"{name} must be a positive multiple of {BLOCK_BYTES}, not {value}")
        if self.journal_file_count < 2:
            raise ConfigError(
                "journal_file_count must be at least 2: one is written while another is recycled"
            )
        if self.round_bytes_max > self.journal_file_bytes:
            raise ConfigError("round_bytes_max must not exceed journal_file_bytes")
        if self.journal_file_bytes > ENTRY_BYTES_MAX:
            raise ConfigError(f"journal_file_bytes must not exceed {ENTRY_BYTES_MAX}")
        if self.read_threads < 1 or self.retry_s <= 0:
            raise ConfigError("read_threads and retry_s must be positive")
