"""A range of a partition, and where it lies in files: values."""

from dataclasses import dataclass, field

from magnetar.broker.log.model import AbortedRange
from magnetar.storage.store import LedgerId


@dataclass(frozen=True, slots=True)
class Range:
    """What is asked of one partition: offsets, or times in milliseconds where no offset is given.

    `to_offset` is not part of it; `to_timestamp_ms` stands for the first offset at or after that time, as Kafka's
    look-up by time gives it.  None: from the beginning, up to the present end.
    """

    topic: str
    partition: int
    from_offset: int | None = None
    to_offset: int | None = None
    from_timestamp_ms: int | None = None
    to_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One file.  Offsets and time are those of all of it that can be read, `bytes` and the rest those of the range."""

    ledger_id: LedgerId
    path: str
    is_sealed: bool
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    data_bytes: int
    cuts: list[tuple[int, int]]
    """(offset, position): where reading can begin."""

    end_position: int

    @property
    def bytes(self) -> int:
        return self.end_position - self.cuts[0][1]


@dataclass(slots=True)
class Located:
    """Where a range lies.  `from_offset` and `to_offset` are what it came to."""

    topic: str
    full: str
    partition: int
    earliest: int
    high_watermark: int
    last_stable: int
    from_offset: int
    to_offset: int
    tail_from: int
    segments: list[Segment] = field(default_factory=list)
    aborted: list[AbortedRange] = field(default_factory=list)
