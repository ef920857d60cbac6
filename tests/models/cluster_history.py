"""What clients of a simulated cluster have seen, and whether the logs that it leaves agree with that.

A body says where its writer believed it to be: its first offset, leader epoch, broker and a number of its own.
"""

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.ledger.chain_rows import METADATA_ROOT
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import EntryId, LedgerId, StoredEntry
from magnetar.testing.metadata import MemoryMetadataStore

from .cluster_stores import Bookies, at_once


class Broken(AssertionError):
    """The cluster has broken a promise."""


def require(holds: bool, *what: object) -> None:
    if not holds:
        raise Broken(" ".join(map(str, what)))


class Row(NamedTuple):
    """One entry of a log."""

    base: int
    last: int
    epoch: int
    broker: int
    number: int
    ledger_id: LedgerId
    entry_id: EntryId


_FIELDS = (20, 10, 6, 10)


def body_of(base: int, epoch: int, broker: int, number: int) -> bytes:
    values = (base, epoch, broker, number)
    return b"".join(str(value).zfill(size).encode() for value, size in zip(values, _FIELDS, strict=True))


def row_of(entry: Entry) -> Row:
    body, at = bytes(entry.payload), 0
    fields: list[int] = []
    for size in _FIELDS:
        fields.append(int(body[at : at + size]))
        at += size
    base, epoch, broker, number = fields
    return Row(base, entry.last_offset, epoch, broker, number, entry.ledger_id, entry.entry_id)


def decode(ledger_id: LedgerId, stored: StoredEntry) -> Entry:
    base = int(bytes(stored.body[: _FIELDS[0]]))
    return Entry(
        base,
        stored.last_offset,
        stored.max_timestamp_ms,
        stored.body,
        EntryKind.KAFKA,
        ledger_id,
        stored.entry_id,
    )


@dataclass
class History:
    """Of one log."""

    name: str
    acknowledged: dict[int, Row] = field(default_factory=dict)  # by first offset
    read: dict[int, Row] = field(default_factory=dict)
    trimmed: int = 0
    """The greatest start of the log that a trim has reported."""

    def acknowledge(self, row: Row) -> None:
        before = self.acknowledged.setdefault(row.base, row)
        require(before == row, self.name, "has acknowledged two entries at one offset:", before, row)

    def see(self, entries: list[Entry]) -> None:
        for row in map(row_of, entries):
            before = self.read.setdefault(row.base, row)
            require(before == row, self.name, "has shown two entries at one offset:", before, row)

    def check(self, metadata: MemoryMetadataStore, bookies: Bookies) -> int:
        """Read the log as its next owner would, and compare; returns how many entries it has."""
        stored = at_once(metadata.get(METADATA_ROOT + self.name))
        require(stored is not None, self.name, "has no chain")
        assert stored is not None
        document = json.loads(stored.value)
        start, position = document["log_start"], document["first"]
        require(start >= self.trimmed, self.name, "begins at", start, "and was trimmed to", self.trimmed)
        rows: dict[int, Row] = {}
        numbers: set[int] = set()
        writers: dict[int, int] = {}
        epoch, where = -1, (-1, -1)
        for ledger_id, *_ in document["ledgers"]:
            require(ledger_id not in bookies.deleted, self.name, "has lost ledger", ledger_id)
            for one in bookies.ledgers[ledger_id].entries:
                row = row_of(decode(ledger_id, one))
                require(row.base == position, self.name, "is not dense at", position, row)
                require((ledger_id, one.entry_id) > where, self.name, "has positions that go back:", row)
                require(row.number not in numbers, self.name, "has one entry twice:", row)
                require(row.epoch >= epoch, self.name, "has epochs that go back:", row)
                writer = writers.setdefault(row.epoch, row.broker)
                require(writer == row.broker, self.name, "has two writers in one generation:", row, writer)
                epoch, where, position = row.epoch, (ledger_id, one.entry_id), row.last + 1
                rows[row.base] = row
                numbers.add(row.number)
        for said, known in (("acknowledged", self.acknowledged), ("shown", self.read)):
            for base, row in known.items():
                found = rows.get(base)
                if found is None and row.last < start:
                    continue
                require(found == row, self.name, "has", said, row, "and has there now", found)
        return len(rows)
