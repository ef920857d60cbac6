"""Linked topics over REST (docs/reference/links.md): for the program that copies, and for the command line.

Every call may be repeated: what is sent twice is stored once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from magnetar.client.errors import BadAnswer
from magnetar.client.http import BYTES, HttpClient
from magnetar.client.login import Login

_LINKS: Final = "/magnetar/v1/links"


@dataclass(frozen=True, slots=True)
class CopiedPartition:
    """How far the copy of a partition is: it has the records from `log_start` up to `end`.  `new`: it has none, and
    may still begin at any offset.
    """

    partition: int
    log_start: int
    end: int
    new: bool


@dataclass(frozen=True, slots=True)
class DeclaredLink:
    """The partitions of a linked topic, by number, and the settings that it does not have, each with the reason."""

    partitions: tuple[CopiedPartition, ...]
    left_out: Mapping[str, str]


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
                _field(row, "topic"),
                _field(row, "source"),
                _field(row, "created_ms"),
                _field(row, "lag"),
                _field(row, "error"),
                _field(row, "reported_ms"),
            )
            for row in _field(self.http.get_json(_LINKS), "links")
        ]

    def declare(
        self, topic: str, source: str, origin: str, partitions: int, configs: Mapping[str, str]
    ) -> DeclaredLink:
        """Create a linked topic, or give it the partitions and settings that its source has now."""
        body = {"source": source, "origin": origin, "partitions": partitions, "configs": dict(configs)}
        answer = self.http.send_json("PUT", _path(topic), body)
        return DeclaredLink(
            tuple(
                CopiedPartition(
                    _field(row, "partition"), _field(row, "log_start"), _field(row, "end"), _field(row, "new")
                )
                for row in _field(answer, "partitions")
            ),
            _field(answer, "left_out"),
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

    def set_positions(self, topic: str, positions: Sequence[GroupPosition]) -> list[str | None]:
        """Give groups their positions; returns for each the error code if the server left it as it is, or None."""
        rows = [
            {"group": one.group, "partition": one.partition, "offset": one.offset, "metadata": one.metadata}
            for one in positions
        ]
        answer = self.http.send_json("POST", _path(topic) + "/positions", {"positions": rows})
        return [_field(row, "error") for row in _field(answer, "positions")]

    def report(self, topic: str, lag: int, error: str) -> None:
        """Say how many records the copy is behind, and what went wrong last; empty: nothing."""
        self.http.send_json("POST", _path(topic) + "/report", {"lag": lag, "error": error})

    def cut(self, topic: str) -> None:
        """Cut a topic loose.  Raises NotFound if it is not linked."""
        self.http.send_json("DELETE", _path(topic))


def _path(topic: str) -> str:
    return f"{_LINKS}/{quote(topic, safe='')}"


def _field(answer: Any, name: str) -> Any:
    """A field that this client needs; it ignores additional fields of later servers."""
    try:
        return answer[name]
    except (KeyError, TypeError, IndexError):
        raise BadAnswer(
            f"the server's answer has no {name}: its version may not suit this client's"
        ) from None
