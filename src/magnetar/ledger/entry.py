"""One entry of a log: what one produce request of either protocol put into one partition.

An entry of n messages takes n offsets.  Its *position* is (ledger_id, entry_id), the first half of a Pulsar message
id.  The store assigns it when it takes the entry, so an entry that still waits for its ledger has `NO_LEDGER` and
`NO_ENTRY`.
"""

from enum import Enum, auto
from typing import Final

from magnetar.storage.store import EntryId, LedgerId

NO_LEDGER: Final = LedgerId(-1)
NO_ENTRY: Final = EntryId(-1)


class EntryKind(Enum):
    """Which protocol's bytes the payload has."""

    KAFKA = auto()  # one record batch
    PULSAR = auto()  # what a client sent after its SEND command: 0e01, checksum, metadata, messages


class Entry:
    """One log entry in memory.  `payload` is the protocol's own bytes, as the client sent them.

    `max_timestamp_ms` is the greatest timestamp of its messages, -1 if they have none.
    """

    __slots__ = (
        "base_offset",
        "entry_id",
        "kind",
        "last_offset",
        "ledger_id",
        "max_timestamp_ms",
        "payload",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        payload: memoryview,
        kind: EntryKind = EntryKind.KAFKA,
        ledger_id: LedgerId = NO_LEDGER,
        entry_id: EntryId = NO_ENTRY,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp_ms = max_timestamp_ms
        self.payload = payload
        self.kind = kind
        self.ledger_id = ledger_id
        self.entry_id = entry_id

    @property
    def message_count(self) -> int:
        """How many offsets it takes."""
        return self.last_offset - self.base_offset + 1

    def __repr__(self) -> str:
        where = f"{self.ledger_id}:{self.entry_id}"
        return f"<{self.kind.name} entry {where}, offsets {self.base_offset} to {self.last_offset}>"
