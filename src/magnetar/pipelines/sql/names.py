"""Names of topics in SQL: which topic a name means, and which name a topic has.

    flights                                  the topic of that name in the namespace of Kafka's short names
    ops.flights                              namespace `ops` of the same tenant
    acme.ops.flights                         tenant `acme`
    `persistent://acme/ops/flights`          the full name
    orders.v1                                if it is none of these: Kafka's topic `orders.v1`; better with quotes

Topics' names are case-sensitive, SQL's are not.  An exact match wins; otherwise case is ignored if only one topic
matches.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FULL: Final = re.compile(
    r"(?P<domain>[a-z-]+)://(?P<tenant>[^/]+)/(?P<namespace>[^/]+)/(?P<topic>.+)", re.DOTALL
)
_DEFAULT: Final = ("public", "default")
_SUGGESTIONS_MAX: Final = 3


class AmbiguousName(Exception):
    """A name that matches no topic exactly, but several without regard to case; the text names them."""


@dataclass(frozen=True, slots=True)
class Topic:
    """`name` is the name for Kafka clients, `full` the name for Pulsar clients; `partitions` is how many the topic
    has.
    """

    name: str
    full: str
    partitions: int

    @property
    def parts(self) -> tuple[str, str, str]:
        """Tenant, namespace and topic."""
        match = _FULL.fullmatch(self.full)
        if match is None:
            raise ValueError(f"{self.full!r} is not the full name of a topic")
        return match["tenant"], match["namespace"], match["topic"]


class Names:
    """The topics of one broker, found by their names in SQL."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.topics: Final = sorted(topics, key=lambda topic: topic.full)
        # The namespace of short names: the tenant and namespace that the server gives to Kafka's names.
        self.tenant, self.namespace = next(
            (topic.parts[:2] for topic in self.topics if topic.name != topic.full), _DEFAULT
        )
        self._exact: dict[tuple[str, ...], Topic] = {}
        self._folded: dict[tuple[str, ...], list[Topic]] = {}
        for spelled, topic in self._spellings():
            if self._exact.setdefault(spelled, topic) is topic:
                folded = self._folded.setdefault(tuple(part.casefold() for part in spelled), [])
                if topic not in folded:
                    folded.append(topic)

    def find(self, parts: Sequence[str]) -> Topic | None:
        """The topic that `parts` name, the parts of a name in SQL without quotes; None if there is none.

        Raises:
            AmbiguousName: no topic matches exactly, but several without regard to case.
        """
        spelled = tuple(parts)
        if (topic := self._exact.get(spelled)) is not None:
            return topic
        folded = self._folded.get(tuple(part.casefold() for part in spelled), ())
        if len(folded) > 1:
            names = ", ".join(self.written(topic) for topic in folded)
            raise AmbiguousName(f"{quoted(parts)} may be any of {names}: write one of them exactly")
        return folded[0] if folded else None

    def written(self, topic: Topic) -> str:
        """The shortest name of `topic` in SQL, with quotes where necessary."""
        tenant, namespace, name = topic.parts
        if (tenant, namespace) == (self.tenant, self.namespace):
            return quoted([name])
        return quoted([namespace, name] if tenant == self.tenant else [tenant, namespace, name])

    def nearest(self, parts: Sequence[str]) -> list[str]:
        """Names of topics that a user who wrote `parts` may have meant, the most likely one first."""
        wanted = ".".join(parts).casefold()
        spelled: dict[str, Topic] = {}
        for topic in self.topics:
            tenant, namespace, name = topic.parts
            for text in (name, f"{namespace}.{name}", f"{tenant}.{namespace}.{name}", topic.full):
                spelled.setdefault(text.casefold(), topic)
        close = difflib.get_close_matches(wanted, spelled, n=2 * _SUGGESTIONS_MAX)
        return list(dict.fromkeys(self.written(spelled[text]) for text in close))[:_SUGGESTIONS_MAX]

    def _spellings(self) -> Iterable[tuple[tuple[str, ...], Topic]]:
        """All names of each topic; preferred ones come first."""
        for topic in self.topics:
            yield (topic.full,), topic
            yield topic.parts, topic
        for topic in self.topics:
            if topic.parts[0] == self.tenant:
                yield topic.parts[1:], topic
        here = [topic for topic in self.topics if topic.parts[:2] == (self.tenant, self.namespace)]
        for topic in here:
            yield (topic.parts[2],), topic
        for topic in here:  # a Kafka topic's name with a dot, without quotes
            yield tuple(topic.parts[2].split(".")), topic


def quoted(parts: Iterable[str]) -> str:
    """`parts` as a name in SQL."""
    return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in parts)


def quote(part: str) -> str:
    """One part of a name in backticks."""
    return f"`{part.replace('`', '``')}`"
