"""What a partition's log answers: values."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple


class AbortedRange(NamedTuple):
    """The records of `producer_id` from `first_offset` to the marker at `last_offset` do not count."""

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
    """An idempotent producer that a partition remembers, as its last batch left it.

    `is_marked`: a transaction of it has ended here.  `transaction_offset` is where its open one begins, -1 for none.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    is_marked: bool
    transaction_offset: int


class Appended(NamedTuple):
    """The answer to a producer.  `append_time_ms` is -1 unless the topic stamps records itself."""

    base_offset: int
    append_time_ms: int


class CompactionState(Enum):
    """Of the last time that Pulsar's compaction was asked for since the start, by the names that Pulsar has."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True)
class CompactionFigures:
    """What Pulsar's compaction of a partition has come to since the start.  Times are 0 for never."""

    state: CompactionState = CompactionState.NOT_RUN
    error: str = ""  # why the last one has failed
    removed_messages: int = 0  # by the last one, as the next two
    succeeded_ms: int = 0
    duration_ms: int = 0
    failed_ms: int = 0
