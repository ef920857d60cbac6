"""Magnetar's REST interface for readers of whole topics (docs/reference/pipelines-rest.md), as typed calls.

Every call may be repeated, and is repeated if the server does not answer (`http.HttpClient`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from magnetar.client.answers import field_of
from magnetar.client.errors import BadAnswer, NotFound, Refused
from magnetar.client.http import HttpClient
from magnetar.client.login import Login

ROOT: Final = "/magnetar/v1"


@dataclass(frozen=True, slots=True)
class Topic:
    """`topic` is its name for Kafka clients, `full` the full name with its scheme."""

    topic: str
    full: str
    partitions: int
    partitioned: bool


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a partition: offsets (`to_offset` is exclusive), or times in milliseconds.

    None: from the beginning, up to the present end.
    """

    topic: str
    partition: int
    from_offset: int | None = None
    to_offset: int | None = None
    from_timestamp_ms: int | None = None
    to_timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with a part of the range.  `cuts` are pairs (offset, position) where reading can begin; it ends at
    `end_position`.  Offsets, `max_timestamp_ms` and `data_bytes` are those of the whole file.
    """

    ledger: int
    path: str
    sealed: bool
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    data_bytes: int
    bytes: int
    cuts: tuple[tuple[int, int], ...]
    end_position: int


@dataclass(frozen=True, slots=True)
class Located:
    """The place of a range.  From `tail_from` on only the server has it (`entries`).

    `aborted` are the aborted transactions: (producer id, first offset, last offset).  If there is an `error`, only
    `topic` and `partition` are valid.
    """

    topic: str
    full: str
    partition: int
    earliest: int
    high_watermark: int
    last_stable: int
    from_offset: int
    to_offset: int
    tail_from: int
    segments: tuple[Segment, ...]
    aborted: tuple[tuple[int, int, int], ...]
    error: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Segments:
    """`store` is the id that must be in a file of the paths' directory; None if nothing is in files."""

    lease: str | None
    store: str | None
    partitions: tuple[Located, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """Whole store records, one after the other, and the log's limits at that time."""

    data: bytes
    earliest: int
    high_watermark: int
    last_stable: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a partition begins and ends.  `offset_for_timestamp` is None if no record is that new, or no time was
    requested.  If there is an `error`, only `topic` and `partition` are valid.
    """

    topic: str
    full: str
    partition: int
    earliest: int
    high_watermark: int
    last_stable: int
    offset_for_timestamp: int | None
    error: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a subscription: the first unacknowledged offset, and the number of unacknowledged messages."""

    topic: str
    full: str
    partition: int
    offset: int
    backlog: int


@dataclass(frozen=True, slots=True)
class Schema:
    """`type` is Pulsar's name of the type (`AVRO`), `schema` the definition."""

    version: int
    type: str
    schema: str
    properties: dict[str, str]


class RestClient:
    """`url` is the server's HTTP address.  Calls raise errors of `magnetar.client.errors`: `Unreachable` if the
    server has not answered for `retry_s`.
    """

    def __init__(
        self, url: str, *, read_s: float = 60.0, retry_s: float = 30.0, login: Login | None = None
    ) -> None:
        self.http = HttpClient(url, read_s=read_s, retry_s=retry_s, login=login)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def topics(self, pattern: str | None = None) -> list[Topic]:
        """All readable topics, or those whose short or full name matches `pattern` (RE2), ordered by full name."""
        query = [] if pattern is None else [("pattern", pattern)]
        return [_topic(row) for row in field_of(self.http.get_json(f"{ROOT}/topics", query), "topics")]

    def segments(
        self, ranges: Sequence[Range], *, lease_s: float | None = None, lease: str | None = None
    ) -> Segments:
        """The places of ranges.  With `lease_s` their files stay for that many seconds; `lease` is one to extend."""
        body: dict[str, Any] = {"partitions": [_asked(one) for one in ranges]}
        if lease_s is not None:
            body["lease_s"] = lease_s
        if lease is not None:
            body["lease"] = lease
        answer = self.http.send_json("POST", f"{ROOT}/segments", body)
        return Segments(
            field_of(answer, "lease"),
            field_of(answer, "store"),
            tuple(_located(row) for row in field_of(answer, "partitions")),
        )

    def entries(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int = 4 << 20,
        wait_ms: int = 0,
        end_offset: int | None = None,
        as_kafka: bool = False,
    ) -> Entries:
        """Store records from the one that holds `offset` on: the first, then as many as fit `bytes_max`, before
        `end_offset`.

        If there is none yet, the server waits up to `wait_ms` for one.  With `as_kafka` the server converts every
        entry to a Kafka batch.  Raises OutOfRange if retention has deleted the records.
        """
        query = [
            ("topic", topic),
            ("partition", str(partition)),
            ("offset", str(offset)),
            ("bytes_max", str(bytes_max)),
            ("wait_ms", str(wait_ms)),
        ]
        if end_offset is not None:
            query.append(("end_offset", str(end_offset)))
        if as_kafka:
            query.append(("as", "kafka"))
        response = self.http.request("GET", f"{ROOT}/entries", query=query, wait_s=wait_ms / 1000)
        try:
            earliest, high_watermark, last_stable = (
                int(response.headers[f"X-Magnetar-{name}"])
                for name in ("Earliest", "High-Watermark", "Last-Stable")
            )
        except (KeyError, ValueError):
            raise BadAnswer(f"{self.http.url} does not say how far the log of {topic} reaches") from None
        return Entries(response.data, earliest, high_watermark, last_stable)

    def renew_lease(self, lease: str, lease_s: float) -> None:
        """Let a lease end `lease_s` seconds from now.  Raises NotFound if it has ended."""
        self.http.send_json("POST", f"{ROOT}/leases/{quote(lease, safe='')}", {"lease_s": lease_s})

    def end_lease(self, lease: str) -> None:
        """End a lease; does nothing if it has ended already."""
        with suppress(NotFound):
            self.http.send_json("DELETE", f"{ROOT}/leases/{quote(lease, safe='')}")

    def offsets(self, wanted: Sequence[tuple[str, int, int | None]]) -> list[Offsets]:
        """Where partitions begin and end; `wanted` has (topic, partition, time in milliseconds or None)."""
        rows = [
            {"topic": topic, "partition": partition, "timestamp": timestamp_ms}
            for topic, partition, timestamp_ms in wanted
        ]
        answer = self.http.send_json("POST", f"{ROOT}/offsets", {"partitions": rows})
        return [_offsets(row) for row in field_of(answer, "partitions")]

    def positions(self, subscription: str, topics: Sequence[str] = ()) -> list[Position]:
        """The positions of a subscription, in all its topics or in `topics`.  Raises NotFound if it does not exist
        there.
        """
        query = [("subscription", subscription), *(("topic", topic) for topic in topics)]
        answer = self.http.get_json(f"{ROOT}/positions", query)
        return [_position(row) for row in field_of(answer, "positions")]

    def set_positions(self, subscription: str, positions: Sequence[tuple[str, int, int]]) -> None:
        """Create a subscription that holds the messages from each (topic, partition, offset) on, or move it forward.

        Raises Refused for the first position that cannot be set; the others are set.
        """
        rows = [
            {"topic": topic, "partition": partition, "offset": offset}
            for topic, partition, offset in positions
        ]
        answer = self.http.send_json(
            "POST", f"{ROOT}/positions", {"subscription": subscription, "positions": rows}
        )
        _check_rows(field_of(answer, "positions"))

    def admissions(self, subscription: str, ranges: Sequence[tuple[str, int, int, int]]) -> list[int]:
        """How far a replicator may read now of each (topic, partition, from offset, to offset); that much counts.

        Raises Refused for the first range that it may not read at all.
        """
        rows = [
            {"topic": topic, "partition": partition, "from_offset": begin, "to_offset": end}
            for topic, partition, begin, end in ranges
        ]
        answer = self.http.send_json(
            "POST", f"{ROOT}/admissions", {"subscription": subscription, "partitions": rows}
        )
        found = field_of(answer, "partitions")
        _check_rows(found)
        return [int(field_of(row, "to_offset")) for row in found]

    def drop_positions(self, subscription: str, topics: Sequence[str] = (), *, force: bool = False) -> int:
        """Drop a subscription, in all its topics or in `topics`; returns of how many partitions."""
        query = [("subscription", subscription), *(("topic", topic) for topic in topics)]
        query += [("force", "true")] * force
        return int(field_of(self.http.send_json("DELETE", f"{ROOT}/positions", query=query), "dropped"))

    def schema(self, topic: str, version: int | None = None) -> Schema:
        """A version of a topic's schema, or the newest one.  Raises NotFound."""
        query = [] if version is None else [("version", str(version))]
        return _schema(self.http.get_json(_schema_path(topic), query))

    def add_schema(self, topic: str, kind: str, definition: str) -> int:
        """Give a topic a schema, as a producer does; `kind` is Pulsar's name of the type.  Returns its version.

        Raises Refused: the topic does not take it.
        """
        body = {"type": kind, "schema": definition, "properties": {}}
        return int(field_of(self.http.send_json("POST", _schema_path(topic), body), "version"))


def _check_rows(rows: Any) -> None:
    """Raises Refused for the first row with an error."""
    for row in rows:
        if field_of(row, "error") is not None:
            raise Refused(str(field_of(row, "reason")), str(field_of(row, "error")), 409)


def _topic(row: Any) -> Topic:
    return Topic(
        topic=field_of(row, "topic"),
        full=field_of(row, "full"),
        partitions=field_of(row, "partitions"),
        partitioned=field_of(row, "partitioned"),
    )


def _position(row: Any) -> Position:
    return Position(
        topic=field_of(row, "topic"),
        full=field_of(row, "full"),
        partition=field_of(row, "partition"),
        offset=field_of(row, "offset"),
        backlog=field_of(row, "backlog"),
    )


def _schema_path(topic: str) -> str:
    return f"{ROOT}/topics/{quote(topic, safe='')}/schema"


def _schema(answer: Any) -> Schema:
    return Schema(
        version=field_of(answer, "version"),
        type=field_of(answer, "type"),
        schema=field_of(answer, "schema"),
        properties=field_of(answer, "properties"),
    )


def _asked(wanted: Range) -> dict[str, Any]:
    row = {
        "topic": wanted.topic,
        "partition": wanted.partition,
        "from_offset": wanted.from_offset,
        "to_offset": wanted.to_offset,
        "from_timestamp": wanted.from_timestamp_ms,
        "to_timestamp": wanted.to_timestamp_ms,
    }
    return {name: value for name, value in row.items() if value is not None}


def _located(row: Any) -> Located:
    error = field_of(row, "error")
    if error is not None:
        return Located(
            field_of(row, "topic"), "", field_of(row, "partition"), -1, -1, -1, -1, -1, -1, (), (), error,
            field_of(row, "reason"),
        )  # fmt: skip
    return Located(
        topic=field_of(row, "topic"),
        full=field_of(row, "full"),
        partition=field_of(row, "partition"),
        earliest=field_of(row, "earliest"),
        high_watermark=field_of(row, "high_watermark"),
        last_stable=field_of(row, "last_stable"),
        from_offset=field_of(row, "from_offset"),
        to_offset=field_of(row, "to_offset"),
        tail_from=field_of(row, "tail_from"),
        segments=tuple(_segment(one) for one in field_of(row, "segments")),
        aborted=tuple((one[0], one[1], one[2]) for one in field_of(row, "aborted")),
        error=None,
        reason=None,
    )


def _offsets(row: Any) -> Offsets:
    error = field_of(row, "error")
    if error is not None:
        return Offsets(
            field_of(row, "topic"),
            "",
            field_of(row, "partition"),
            -1,
            -1,
            -1,
            None,
            error,
            field_of(row, "reason"),
        )
    return Offsets(
        topic=field_of(row, "topic"),
        full=field_of(row, "full"),
        partition=field_of(row, "partition"),
        earliest=field_of(row, "earliest"),
        high_watermark=field_of(row, "high_watermark"),
        last_stable=field_of(row, "last_stable"),
        offset_for_timestamp=field_of(row, "offset_for_timestamp"),
        error=None,
        reason=None,
    )


def _segment(row: Any) -> Segment:
    return Segment(
        ledger=field_of(row, "ledger"),
        path=field_of(row, "path"),
        sealed=field_of(row, "state") == "sealed",
        first_offset=field_of(row, "first_offset"),
        last_offset=field_of(row, "last_offset"),
        max_timestamp_ms=field_of(row, "max_timestamp_ms"),
        data_bytes=field_of(row, "data_bytes"),
        bytes=field_of(row, "bytes"),
        cuts=tuple((offset, position) for offset, position in field_of(row, "cuts")),
        end_position=field_of(row, "end_position"),
    )
