"""Values: a range of a partition, and its place in files."""

from dataclasses import dataclass, field

from magnetar.broker.log.model import AbortedRange
from magnetar.storage.store import LedgerId


@dataclass(frozen=True, slots=True)
class Range:
    """A requested range of one partition: offsets, or times in milliseconds where there is no offset.

    `to_offset` is exclusive.  `to_timestamp_ms` means the first offset at or after that time, as in Kafka's look-up
    by time.  None means from the beginning, or up to the present end.
    """

    topic: str
    partition: int
    from_offset: int | None = None
    to_offset: int | None = None
    from_timestamp_ms: int | None = None
    to_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One file.  Its offsets and times are those of everything readable in it; the other attributes are those of the
    range.
    """

    ledger_id: LedgerId
    path: str
    is_sealed: bool
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    data_bytes: int
    cuts: list[tuple[int, int]]
    """Pairs (offset, position) where reading can begin."""

    end_position: int

    @property
    def bytes(self) -> int:
        return self.end_position - self.cuts[0][1]


@dataclass(slots=True)
class Located:
    """The place of a range.  `from_offset` and `to_offset` are its actual offsets."""

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
