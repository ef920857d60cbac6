"""Values that a partition's log returns."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple

LINKED_OFFSET_MAX: Final = (1 << 62) - 1
"""The largest offset of a copied record: a log that begins there does not come to the end of its numbers."""


class Position(NamedTuple):
    """Where a copied entry is in the cluster of Pulsar that it comes from.

    An `entry_id` of -1 is before a ledger's first entry.
    """

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class AbortedRange(NamedTuple):
    """An aborted transaction: the records of `producer_id` from `first_offset` to the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int


class TimestampLookup(IntEnum):
    """Special timestamps of ListOffsets."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class KnownProducer(NamedTuple):
    """An idempotent producer that a partition knows, with the state after its last batch.

    `is_marked`: a transaction of the producer has ended here.  `transaction_offset` is where its open transaction
    begins, -1 if there is none.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    is_marked: bool
    transaction_offset: int


class Appended(NamedTuple):
    """The answer to a producer.  `append_time_ms` is -1 unless the topic sets the timestamps of records itself."""

    base_offset: int
    append_time_ms: int


class CompactionState(Enum):
    """The state of the last run of Pulsar's compaction that was requested since the start, with Pulsar's names."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True)
class CompactionFigures:
    """What Pulsar's compaction of a partition has done since the start.  A time of 0 means never."""

    state: CompactionState = CompactionState.NOT_RUN
    error: str = ""  # why the last run failed
    removed_messages: int = 0  # by the last run; so are the next two
    succeeded_ms: int = 0
    duration_ms: int = 0
    failed_ms: int = 0
