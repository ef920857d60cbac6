"""A partition whose entries are converted (`log/partition.py`), as the conversion uses it."""

from typing import Protocol

from magnetar.ledger.entry import Entry


class ConvertedLog(Protocol):
    """The log of the partition, which the conversion reads because a chunked message is in many entries."""

    @property
    def name(self) -> str: ...
    @property
    def log_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which the record at `offset` was written."""
        ...

    def read_cached(self, offset: int, bytes_max: int, end_offset: int) -> list[Entry] | None:
        """Cached entries from `offset` on and below `end_offset`; None if they must be read from the store."""
        ...

    async def read(self, offset: int, bytes_max: int) -> list[Entry]:
        """Read entries from the store, from the one that holds `offset` on: the first, then as many as fit
        `bytes_max`.

        Raises:
            EntryCorrupt: the entry that holds `offset` fails its checksum.
            StorageError: the store cannot be read.
        """
        ...


class ConvertedPartition(Protocol):
    """The partition of a `ConvertedLog`; `str` gives its name for operators."""

    @property
    def log(self) -> ConvertedLog: ...
    def aborted_by(self, entry: Entry) -> int | None:
        """The producer id of the aborted transaction to which an entry of a Pulsar client belongs; None for any other
        entry.

        Raises:
            WireError: the entry's metadata cannot be read.
        """
        ...

    def __str__(self) -> str: ...
