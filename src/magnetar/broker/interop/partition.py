"""A partition whose entries are converted, as far as the conversion needs it (`log/partition.py`)."""

from typing import Protocol

from magnetar.ledger.entry import Entry


class ConvertedLog(Protocol):
    """A log whose entries are converted, as far as that needs it: a chunked message lies in many entries."""

    @property
    def name(self) -> str: ...
    @property
    def log_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    def epoch_at(self, offset: int) -> int:
        """The leader epoch that the record at `offset` was written under."""
        ...

    def read_cached(self, offset: int, bytes_max: int, end_offset: int) -> list[Entry] | None:
        """What the cache holds from `offset` on and below `end_offset`; None when it has to come from the store."""
        ...

    async def read(self, offset: int, bytes_max: int) -> list[Entry]:
        """Entries from the one that holds `offset` on, from the store: one, then as many as fit `bytes_max`.

        Raises:
            EntryCorrupt: the entry that holds `offset` fails its checksum.
            StorageError: the store cannot be read.
        """
        ...


class ConvertedPartition(Protocol):
    """The partition of a `ConvertedLog`; as a text it is what an operator calls it."""

    @property
    def log(self) -> ConvertedLog: ...
    def aborted_by(self, entry: Entry) -> int | None:
        """The producer id of the aborted transaction that an entry of Pulsar's is of; None for any other.

        Raises:
            WireError: its metadata cannot be read.
        """
        ...

    def __str__(self) -> str: ...
