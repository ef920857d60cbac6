"""Linked topics over REST (docs/reference/links.md): for the program that copies, and for the command line.

Every call may be repeated: what is sent twice is stored once.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from magnetar.client.answers import field_of
from magnetar.client.errors import BadAnswer
from magnetar.client.http import BYTES, HttpClient
from magnetar.client.login import Login

_LINKS: Final = "/magnetar/v1/links"


class Position(NamedTuple):
    """Where an entry is in a cluster of Pulsar's; an `entry_id` of -1 is before a ledger's first entry."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """How far the copy of a partition is: it has the records from `log_start` up to `end`.  `new`: it has none, and
    may still begin at any offset.  `position` is where its last entry is in its cluster of Pulsar, None if it has none.
    """

    partition: int
    log_start: int
    end: int
    new: bool
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class DeclaredLink:
    """The partitions of a linked topic, by number, the settings that it does not have, each with the reason, and how
    many versions its schema has.
    """

    partitions: tuple[CopiedPartition, ...]
    left_out: Mapping[str, str]
    schema_count: int


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A linked topic.  `lag` (records) and `reported_ms` are None if no report has come since the server's start."""

    topic: str
    source: str
    created_ms: int
    lag: int | None
    error: str
    reported_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """The offset that a group has committed for a partition."""

    group: str
    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class SubscriptionPosition:
    """What a subscription of a Pulsar cluster has acknowledged in a partition.  It is all messages up to `mark_delete`,
    and, for each of the pairs, the messages behind the first position up to the second.
    """

    subscription: str
    partition: int
    mark_delete: Position
    acknowledged: tuple[tuple[Position, Position], ...]
    properties: Mapping[str, str]


class SchemaRow(NamedTuple):
    """A version of a topic's schema.  `type` is the number that Pulsar's protocol has for it."""

    type: int
    data: bytes
    properties: Mapping[str, str]
    name: str


class LinksClient:
    """Topics have the names that Kafka's clients use.  All calls raise errors of `magnetar.client.errors`."""

    def __init__(
        self, url: str, *, read_s: float = 60.0, retry_s: float = 30.0, login: Login | None = None
    ) -> None:
        self.http = HttpClient(url, read_s=read_s, retry_s=retry_s, login=login)

    def close(self) -> None:
        self.http.close()

    def all(self) -> list[LinkRow]:
        """All links, by topic."""
        return [
            LinkRow(
                field_of(row, "topic"),
                field_of(row, "source"),
                field_of(row, "created_ms"),
                field_of(row, "lag"),
                field_of(row, "error"),
                field_of(row, "reported_ms"),
            )
            for row in field_of(self.http.get_json(_LINKS), "links")
        ]

    def declare(
        self,
        topic: str,
        source: str,
        origin: str,
        partitions: int,
        configs: Mapping[str, str] | None,
        *,
        is_partitioned: bool = True,
    ) -> DeclaredLink:
        """Create a linked topic, or give it the partitions and settings (None: its own) that its source has now."""
        body: dict[str, Any] = {"source": source, "origin": origin, "partitions": partitions}
        body["partitioned"] = is_partitioned
        if configs is not None:
            body["configs"] = dict(configs)
        answer = self.http.send_json("PUT", _path(topic), body)
        return DeclaredLink(
            tuple(
                CopiedPartition(
                    field_of(row, "partition"),
                    field_of(row, "log_start"),
                    field_of(row, "end"),
                    field_of(row, "new"),
                    _position(field_of(row, "position")),
                )
                for row in field_of(answer, "partitions")
            ),
            field_of(answer, "left_out"),
            field_of(answer, "schemas"),
        )

    def append(self, topic: str, partition: int, batches: bytes, *, after: int, begin: int, end: int) -> int:
        """Append record batches at their offsets, and return where the log ends then: at `end`, or later.

        `after` is where it ends now, as the caller knows; a new log begins at `begin`.  Raises Refused if the log ends
        before `after`, or if a batch overlaps its end.
        """
        query = [
            ("partition", str(partition)),
            ("after", str(after)),
            ("begin", str(begin)),
            ("end", str(end)),
        ]
        response = self.http.request(
            "POST", _path(topic) + "/records", query=query, body=batches, body_type=BYTES
        )
        try:
            return int(response.json()["end"])
        except (ValueError, KeyError, TypeError):
            raise BadAnswer(f"{self.http.url} does not say where the log of {topic} ends") from None

    def append_entries(self, topic: str, partition: int, entries: bytes, *, after: Position | None) -> None:
        """Append entries of a cluster of Pulsar's (`wire/pulsar/linked.py`); `after` is the position of the copy's
        last one, as the caller knows.  Raises Refused if the copy ends before that.
        """
        query = [("partition", str(partition)), *([] if after is None else [("after", str(after))])]
        self.http.request("POST", _path(topic) + "/entries", query=query, body=entries, body_type=BYTES)

    def add_schemas(self, topic: str, first: int, schemas: Sequence[SchemaRow | None]) -> int:
        """Append versions of a topic's schema, the first of which is `first`; None for one that was deleted.  Returns
        how many there are then.
        """
        rows = [None if one is None else _schema_row(one) for one in schemas]
        answer = self.http.send_json("POST", _path(topic) + "/schemas", {"first": first, "schemas": rows})
        return int(field_of(answer, "schemas"))

    def set_subscriptions(
        self, topic: str, subscriptions: Sequence[SubscriptionPosition]
    ) -> list[str | None]:
        """Give subscriptions what they have acknowledged in the source; returns for each the code of the reason why
        it was left as it is, or None.
        """
        rows = [
            {
                "subscription": one.subscription,
                "partition": one.partition,
                "mark_delete": str(one.mark_delete),
                "acknowledged": [[str(first), str(last)] for first, last in one.acknowledged],
                "properties": dict(one.properties),
            }
            for one in subscriptions
        ]
        answer = self.http.send_json("POST", _path(topic) + "/subscriptions", {"subscriptions": rows})
        return [field_of(row, "error") for row in field_of(answer, "subscriptions")]

    def set_positions(self, topic: str, positions: Sequence[GroupPosition]) -> list[str | None]:
        """Give groups their positions; returns for each the error code if the server left it as it is, or None."""
        rows = [
            {"group": one.group, "partition": one.partition, "offset": one.offset, "metadata": one.metadata}
            for one in positions
        ]
        answer = self.http.send_json("POST", _path(topic) + "/positions", {"positions": rows})
        return [field_of(row, "error") for row in field_of(answer, "positions")]

    def report(self, topic: str, lag: int, error: str) -> None:
        """Say how many records the copy is behind, and what went wrong last; empty: nothing."""
        self.http.send_json("POST", _path(topic) + "/report", {"lag": lag, "error": error})

    def cut(self, topic: str) -> None:
        """Cut a topic loose.  Raises NotFound if it is not linked."""
        self.http.send_json("DELETE", _path(topic))


def _schema_row(schema: SchemaRow) -> dict[str, Any]:
    return {
        "type": schema.type,
        "data": b64encode(schema.data).decode(),
        "properties": dict(schema.properties),
        "name": schema.name,
    }


def _path(topic: str) -> str:
    return f"{_LINKS}/{quote(topic, safe='')}"


def _position(text: str | None) -> Position | None:
    if text is None:
        return None
    try:
        ledger_id, entry_id = map(int, text.split(":"))
    except ValueError:
        raise BadAnswer(f"the server's answer has the position {text[:50]!r}, which is none") from None
    return Position(ledger_id, entry_id)
