"""Where reading begins and ends: the positions in options, and the offsets that they mean for existing partitions.

The JSON is that of Spark's `kafka` source: `{"topic": {"0": 23, "1": -1}}`, with -1 for latest and -2 for earliest.
A stream's offsets have the same form, keys in order, because Spark compares them as text.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

from magnetar.base.listed import listed as listed_names
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.read.errors import TopicError

LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2
NAMED_MAX: Final = 10  # partitions that an error lists before it only counts them


class TopicPartition(NamedTuple):
    """One partition, with the topic's name in its rows."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """The offsets that a partition has now: from `earliest` (inclusive) to `end` (exclusive).

    `by_timestamp` is the first offset whose record is at or after the requested time; None if there is none, or no
    time was requested.
    """

    earliest: int
    end: int
    by_timestamp: int | None = None


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Position:
    """The start or the end of reading.  `each` has offsets or milliseconds by partition, `timestamp_ms` one time for
    all.
    """

    kind: Kind
    each: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp_ms: int = 0

    @property
    def asks_latest(self) -> bool:
        return self.kind is Kind.LATEST or (
            self.kind is Kind.OFFSETS and any(value == LATEST_OFFSET for _, value in self.each)
        )

    @property
    def asks_earliest(self) -> bool:
        return self.kind is Kind.EARLIEST or (
            self.kind is Kind.OFFSETS and any(value == EARLIEST_OFFSET for _, value in self.each)
        )

    def timestamp_of(self, partition: TopicPartition) -> int | None:
        """The time by which `partition` is looked up; None if it is not looked up by time."""
        if self.kind is Kind.TIMESTAMP:
            return self.timestamp_ms
        if self.kind is Kind.TIMESTAMPS:
            return dict(self.each).get(partition)
        return None

    def renamed(self, names: Mapping[str, str]) -> "Position":
        """A copy with topics under their names in rows (`names`: name in the options -> name in rows)."""
        each = (
            (TopicPartition(names.get(key.topic, key.topic), key.partition), value)
            for key, value in self.each
        )
        return Position(self.kind, tuple(each), self.timestamp_ms)


EARLIEST: Final = Position(Kind.EARLIEST)
LATEST: Final = Position(Kind.LATEST)


# -- from text


def parse_offsets(option: str, text: str) -> Position:
    """`earliest`, `latest` or JSON."""
    if text.lower() == "earliest":
        return EARLIEST
    if text.lower() == "latest":
        return LATEST
    each = _by_partition(option, text, least=EARLIEST_OFFSET, what="offset")
    return Position(Kind.OFFSETS, each)


def parse_timestamp(option: str, text: str) -> Position:
    """Milliseconds since 1970."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise OptionError(f"option {option}: {text!r} is not a time in milliseconds since 1970")
    return Position(Kind.TIMESTAMP, timestamp_ms=int(text))


def parse_timestamps(option: str, text: str) -> Position:
    """JSON with milliseconds since 1970 for each partition."""
    return Position(Kind.TIMESTAMPS, _by_partition(option, text, least=0, what="time in milliseconds"))


def parse_assignment(option: str, text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """`{"topic": [0, 1]}`"""
    value = _json_object(option, text, example='{"topic": [0, 1]}')
    assigned: list[tuple[str, tuple[int, ...]]] = []
    for topic, partitions in value.items():
        if not isinstance(partitions, list) or not partitions or not all(_is_index(p) for p in partitions):
            raise OptionError(f"option {option}: partitions of {topic} have to be a list such as [0, 1]")
        assigned.append((topic, tuple(sorted(set(partitions)))))
    if not assigned:
        raise OptionError(f"option {option}: {text} names no partition")
    return tuple(assigned)


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _json_object(option: str, text: str, *, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise OptionError(f"option {option}: {text!r} is not JSON such as {example}")
    return value


def _by_partition(option: str, text: str, *, least: int, what: str) -> tuple[tuple[TopicPartition, int], ...]:
    value = _json_object(option, text, example='{"topic": {"0": 23, "1": 45}}')
    found: list[tuple[TopicPartition, int]] = []
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise OptionError(f'option {option}: {topic} needs an object such as {{"0": 23, "1": 45}}')
        for key, number in partitions.items():
            if not (key.isascii() and key.isdigit() and len(key) <= 10):
                raise OptionError(f"option {option}: {key!r} is not a partition of {topic}; give its number")
            if not isinstance(number, int) or isinstance(number, bool) or not least <= number < 1 << 63:
                raise OptionError(f"option {option}: {number!r} for {topic}-{key} is not an {what}")
            found.append((TopicPartition(topic, int(key)), number))
    if not found:
        raise OptionError(f"option {option}: {text} names no partition")
    return tuple(found)


# -- to offsets


def check_complete(option: str, position: Position, partitions: Iterable[TopicPartition]) -> None:
    """Check that a position with partitions names exactly those that are read."""
    if position.kind not in (Kind.OFFSETS, Kind.TIMESTAMPS):
        return
    named, read = {key for key, _ in position.each}, set(partitions)
    if missing := read - named:
        raise OptionError(
            f"option {option} leaves out {listed(missing)}; name every partition that is read"
            + (" (-2 is earliest, -1 latest)" if position.kind is Kind.OFFSETS else "")
        )
    if unread := named - read:
        raise OptionError(f"option {option} names {listed(unread)}, which this query does not read")


def resolve_start(
    option: str,
    position: Position,
    limits: Mapping[TopicPartition, Limits],
    *,
    latest_when_no_timestamp: bool,
) -> Offsets:
    """The first offset of each partition.  An offset before the earliest record stays, because it means lost data.

    Raises:
        OptionError: no record is at or after the requested time, or an offset is after the end.
    """
    each = dict(position.each)
    found: Offsets = {}
    for partition, limit in limits.items():
        match position.kind:
            case Kind.EARLIEST:
                offset = limit.earliest
            case Kind.LATEST:
                offset = limit.end
            case Kind.OFFSETS:
                offset = _special(each[partition], limit)
                if offset > limit.end:
                    raise OptionError(
                        f"option {option}: {partition} ends at offset {limit.end}, before {offset};"
                        " use latest or a smaller offset"
                    )
            case Kind.TIMESTAMP | Kind.TIMESTAMPS:
                if limit.by_timestamp is not None:
                    offset = limit.by_timestamp
                elif latest_when_no_timestamp:
                    offset = limit.end
                else:
                    raise OptionError(
                        f"option {option}: {partition} has no record of {position.timestamp_of(partition)} ms or later;"
                        " use an earlier time, or set startingOffsetsByTimestampStrategy to latest"
                    )
        found[partition] = offset
    return found


def resolve_end(option: str, position: Position, limits: Mapping[TopicPartition, Limits]) -> Offsets:
    """The offset before which each partition ends.

    Raises:
        OptionError: an offset is after the partition's end.
    """
    each = dict(position.each)
    found: Offsets = {}
    for partition, limit in limits.items():
        offset = limit.end
        if position.kind is Kind.OFFSETS:
            offset = _special(each[partition], limit)
            if offset > limit.end:
                raise OptionError(
                    f"option {option}: {partition} ends at offset {limit.end}, before {offset};"
                    " use latest or a smaller offset"
                )
        elif limit.by_timestamp is not None:
            offset = min(limit.by_timestamp, limit.end)
        found[partition] = offset
    return found


def _special(offset: int, limit: Limits) -> int:
    if offset == LATEST_OFFSET:
        return limit.end
    return limit.earliest if offset == EARLIEST_OFFSET else offset


# -- a stream's offsets


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The offsets in the form that Spark stores: topics ordered by name, partitions by number."""
    value: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        value.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return value


def offsets_from_json(value: Mapping[str, Any]) -> Offsets:
    """The inverse of `offsets_to_json`, for offsets from a checkpoint.

    Raises:
        TopicError: `value` has another form.
    """
    try:
        return {
            TopicPartition(str(topic), int(key)): int(offset)
            for topic, partitions in value.items()
            for key, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise TopicError(
            f"the checkpoint holds {str(value)[:200]}, which is not a position of this source;"
            " use another checkpointLocation"
        ) from None


def listed(partitions: Iterable[TopicPartition]) -> str:
    """`a-0, a-1 and 3 more`"""
    return listed_names(sorted(partitions), NAMED_MAX)
