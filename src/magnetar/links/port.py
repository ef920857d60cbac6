"""What `clone.py` knows of a source and of its copies; `kafka/` and `pulsar/` have the two kinds.

The place of a record in its partition is a number, and these numbers ascend.  For Kafka it is the offset; for Pulsar it
is made of ledger id and entry id (`pulsar/positions.py`).  A copy ends, and a source is read on, at such a number.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

Place: TypeAlias = tuple[str, int]  # topic, partition


class Item(Protocol):
    """What a source sends: a record, or an entry of several messages, at its `offset`."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...


Read_co = TypeVar("Read_co", bound=Item, covariant=True)
Taken_contra = TypeVar("Taken_contra", bound=Item, contravariant=True)


class SourceTopic(NamedTuple):
    """A topic.  `origin` is its identity, also if another topic gets its name; `configs` are settings of its own, None
    if settings are not copied.  A topic of Pulsar's that is not partitioned counts as one partition.
    """

    name: str
    partition_count: int
    origin: str
    configs: Mapping[str, str] | None
    is_partitioned: bool = True


class End(NamedTuple):
    """A partition has nothing for readers at or behind the last item that came and before `offset`."""

    topic: str
    partition: int
    offset: int


class OutOfRange(NamedTuple):
    """The source does not have the place that was assigned."""

    topic: str
    partition: int


class Gone(NamedTuple):
    """The source does not have the topic or the partition."""

    topic: str
    partition: int


Event: TypeAlias = End | OutOfRange | Gone


class Source(Protocol[Read_co]):
    """A cluster whose topics are copied.  All methods raise SourceUnavailable if it does not answer, or refuses."""

    trouble: str  # what went wrong last; the next answer takes it back

    def topics(self, is_wanted: Callable[[str], bool]) -> Sequence[SourceTopic]:
        """The topics whose names are wanted, by name, except those of the cluster itself."""
        ...

    def begins_at(self, place: Place, since_ms: int | None) -> int:
        """Where a copy begins that has what the partition has; or what it has of that time and later."""
        ...

    def goes_on_at(self, place: Place, end: int) -> int:
        """Where the source is read on for a copy that ends there.  Raises LinkError: the source ends before."""
        ...

    def lag(self, place: Place, end: int) -> int:
        """How much the partition has behind a copy that ends there, as far as the source has told."""
        ...

    def assign(self, offsets: Mapping[Place, int]) -> None:
        """Read these partitions from there on, and no others."""
        ...

    def read(self, wait_s: float) -> Iterator[Read_co | Event]:
        """What has come, after at most `wait_s`."""
        ...


@dataclass(slots=True)
class Copy:
    """A partition: its copy ends at `end`, and has begun unless `begin` says where it is to begin.

    `next_offset` is where the source is read on.  `items` have come and are not sent; `source_end` is the end that
    the source has told since, -1 if none was.  `is_complete`: the copy has once had all that the source
    had at that moment.
    """

    end: int
    next_offset: int
    begin: int
    items: list[Any] = field(default_factory=list)
    source_end: int = -1
    is_complete: bool = False


class FoundCopy(NamedTuple):
    """How far the copy of a partition is; `is_new`: it may still begin anywhere."""

    partition: int
    end: int
    is_new: bool


class Found(NamedTuple):
    """The copies of a topic's partitions, and the settings that it does not have, each with the reason."""

    partitions: Sequence[FoundCopy]
    left_out: Mapping[str, str]


class Copies(Protocol[Taken_contra]):
    """Copies of one kind, in the server.  All methods raise errors of `magnetar.client.errors`."""

    are_held_first: bool  # positions are given before anything is copied, so that nothing of it is deleted

    def declare(self, topic: SourceTopic) -> Found:
        """Create a linked topic, or give it what its source has now."""
        ...

    def send(self, place: Place, copy: Copy, items: Sequence[Taken_contra], source_end: int) -> int:
        """Send what has come of a partition, and its end unless that is -1; `copy` ends there then.  Returns how many
        records these are.
        """
        ...

    def positions(self, copies: Mapping[Place, Copy]) -> Iterable[tuple[str, Sequence[Any]]]:
        """What the source's groups have consumed of these partitions, by topic, in parts that one request can take."""
        ...

    def set_positions(self, topic: str, positions: Sequence[Any]) -> str:
        """Give them the same positions here; returns what went wrong last, empty if nothing did."""
        ...
