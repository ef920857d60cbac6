"""Judges what the group read.  No I/O.

Kafka's promise to a group is *at least once, in order per key*: read in the order of time, the first time that each
flight shows up, the flights of one aircraft follow each other as they flew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from demo.consumer import Batch
from demo.flights import Flights


@dataclass
class Verdict:
    """Counts of what was read, and what was wrong with it."""

    flights: int = 0  # different ones
    deliveries: int = 0  # with those that came twice
    missing: int = 0
    changed: int = 0  # key or value differ from what was sent
    out_of_order: int = 0  # flights that came before an earlier one of the same aircraft
    split_keys: int = 0  # aircraft whose flights are in more than one partition
    duplicates_of: dict[str, int] = field(default_factory=dict)  # first reader -> flights that came again
    read_by: dict[str, int] = field(default_factory=dict)  # member -> deliveries
    per_partition: dict[int, int] = field(default_factory=dict)  # partition -> different flights

    @property
    def duplicates(self) -> int:
        return sum(self.duplicates_of.values())

    def faults(self, killed: str) -> list[str]:
        """One sentence for each promise that was not kept; duplicates are fine if `killed` had read them first."""
        other = self.duplicates - self.duplicates_of.get(killed, 0)
        found = {
            "flights never arrived": self.missing,
            "records came with another key or value than was sent": self.changed,
            "flights came before an earlier one of the same aircraft": self.out_of_order,
            "aircraft are spread over several partitions": self.split_keys,
            "flights came twice although their reader was not killed": other,
        }
        return [f"{count:,} {what}" for what, count in found.items() if count]


def judge(flights: Flights, read: Sequence[tuple[str, Batch]]) -> Verdict:
    """`read` holds (member, what it read) in any order."""
    verdict = Verdict()
    sent = flights.checksums()
    first_reader: dict[int, str] = {}
    last_row: dict[bytes, int] = {}
    home: dict[bytes, int] = {}
    split: set[bytes] = set()
    for member, batch in sorted(read, key=lambda each: each[1].sent_at):
        verdict.deliveries += len(batch)
        verdict.read_by[member] = verdict.read_by.get(member, 0) + len(batch)
        for partition, row, checksum in zip(batch.partitions, batch.rows, batch.checksums, strict=True):
            if not 0 <= row < len(sent) or checksum != sent[row]:
                verdict.changed += 1
                continue
            if row in first_reader:
                reader = first_reader[row]
                verdict.duplicates_of[reader] = verdict.duplicates_of.get(reader, 0) + 1
                continue
            first_reader[row] = member
            verdict.per_partition[partition] = verdict.per_partition.get(partition, 0) + 1
            key = flights.keys[row]
            if key is None:
                continue  # no aircraft: nothing to be in order with
            if row < last_row.get(key, -1):
                verdict.out_of_order += 1
            last_row[key] = row
            if home.setdefault(key, partition) != partition:
                split.add(key)
    verdict.flights = len(first_reader)
    verdict.missing = len(flights) - len(first_reader)
    verdict.split_keys = len(split)
    return verdict
