"""Which topics exist, how far they reach and where a subscription is: the broker's answers, for a planner."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from magnetar.base.error_codes import TOPIC_NOT_AUTHORIZED
from magnetar.base.names import PERSISTENT
from magnetar.client.errors import NotFound, Refused
from magnetar.client.login import Server
from magnetar.client.rest import RestClient, Topic
from magnetar.pipelines.connector.options import OptionError
from magnetar.pipelines.connector.read.client import asked, client_of
from magnetar.pipelines.connector.read.errors import SourceError, TopicError
from magnetar.pipelines.connector.read.options import Choice, Selection
from magnetar.pipelines.connector.read.positions import Limits, Offsets, TopicPartition, listed

FIRST_ANSWER_S: Final = 30.0  # an address that has never answered is more likely misspelt than restarting
_PATTERN_CHARS_MAX: Final = 1000

T = TypeVar("T")


class Catalogue:
    """The questions of one query's planner to the broker."""

    def __init__(self, server: Server, timeout_s: float, *, committed: bool) -> None:
        self.server = server
        self.url = server.url
        self._timeout_s = min(timeout_s, FIRST_ANSWER_S)  # until there is an answer
        self._later_timeout_s = timeout_s
        self._committed = committed

    @property
    def client(self) -> RestClient:
        return client_of(self.server, self._timeout_s)

    def ask(self, ask: Callable[[RestClient], T]) -> T:
        """One question.  Raises: SourceError."""
        answer = asked(lambda: ask(self.client), url=self.url, timeout_s=self._timeout_s)
        self._timeout_s = self._later_timeout_s
        return answer

    # -- which partitions

    def partitions(self, selection: Selection, *, all_there: bool = True) -> dict[TopicPartition, Topic]:
        """The selected partitions, by the names in their rows, with their topics.

        Partitions that do not exist are an error, unless `all_there` is false: then they are left out.

        Raises:
            OptionError: the pattern is none.
            TopicError: a topic or partition that was named does not exist.
            SourceError: the broker does not answer.
        """
        topics = self._topics(selection, all_there=all_there)
        if selection.choice is not Choice.ASSIGNED:
            return {
                TopicPartition(topic.topic, number): topic
                for topic in topics.values()
                for number in range(topic.partitions)
            }
        found: dict[TopicPartition, Topic] = {}
        for name, numbers in selection.assigned:
            topic = topics.get(name)
            for number in numbers if topic is not None else ():
                assert topic is not None
                if number >= topic.partitions:
                    if not all_there:
                        continue
                    raise TopicError(
                        f"option assign: topic {name} has no partition {number}, only 0 to {topic.partitions - 1}"
                    )
                found[TopicPartition(topic.topic, number)] = topic
        return found

    def names(self, selection: Selection) -> dict[str, str]:
        """The names of topics in options, mapped to their names in rows."""
        names: dict[str, str] = {}
        for asked_as, topic in self._topics(selection, all_there=True).items():
            names[asked_as] = names[topic.full] = names[topic.topic] = topic.topic
        return names

    def _topics(self, selection: Selection, *, all_there: bool) -> dict[str, Topic]:
        """The selected topics, by the names that the options have for them."""
        if selection.choice is Choice.PATTERN:
            try:
                found = self.ask(lambda client: client.topics(selection.pattern))
            except SourceError as error:
                if not isinstance(error.__cause__, Refused):
                    raise
                raise OptionError(f"option {selection.option}: {error.__cause__}") from error
            return {topic.full: topic for topic in found}
        names = selection.names or tuple(name for name, _ in selection.assigned)
        pattern: str | None = "|".join(re.escape(name) for name in map(_as_listed, names))
        if pattern is not None and len(pattern) > _PATTERN_CHARS_MAX:
            pattern = None
        listed_topics = self.ask(lambda client: client.topics(pattern))
        by_name = {name: topic for topic in listed_topics for name in (topic.topic, topic.full)}
        missing = [name for name in names if _as_listed(name) not in by_name]
        if missing and all_there:
            self._check_rights(missing)
            raise TopicError(
                f"option {selection.option}: there is no topic {', '.join(missing[:10])} at {self.url};"
                " check the name, or create it first"
            )
        return {name: by_name[_as_listed(name)] for name in names if _as_listed(name) in by_name}

    def _check_rights(self, missing: list[str]) -> None:
        """No list has the topics that this caller may not know.  If the caller asks for one by name, the broker
        refuses, and does not say whether it exists.

        Raises:
            TopicError: one of them is refused.
        """
        for answer in self.ask(lambda client: client.offsets([(name, 0, None) for name in missing])):
            if answer.error == TOPIC_NOT_AUTHORIZED:
                raise TopicError(f"topic {answer.topic} cannot be read: {answer.reason}")

    # -- how far they reach

    def limits(
        self,
        partitions: Iterable[TopicPartition],
        timestamps: Mapping[TopicPartition, int] | None = None,
        *,
        all_there: bool = True,
    ) -> dict[TopicPartition, Limits]:
        """Where partitions begin and end now, and where they pass the times of `timestamps`.

        Partitions that no longer exist are an error, unless `all_there` is false: then they are left out.

        Raises:
            TopicError: one does not exist any more.
            SourceError: the broker does not answer.
        """
        wanted = list(partitions)
        if not wanted:
            return {}
        times = timestamps or {}
        answers = self.ask(
            lambda client: client.offsets([(each.topic, each.partition, times.get(each)) for each in wanted])
        )
        gone = [each for each, answer in zip(wanted, answers, strict=True) if answer.error is not None]
        if gone and all_there:
            reason = next(answer.reason for answer in answers if answer.error is not None)
            raise TopicError(f"{listed(gone)} cannot be read: {reason}")
        return {
            each: Limits(
                earliest=answer.earliest,
                end=answer.last_stable if self._committed else answer.high_watermark,
                by_timestamp=answer.offset_for_timestamp,
            )
            for each, answer in zip(wanted, answers, strict=True)
            if answer.error is None
        }

    # -- where a subscription stands

    def subscription(self, name: str) -> Offsets:
        """The positions of a subscription, by partition; partitions without one are left out."""
        try:
            found = self.ask(lambda client: client.positions(name))
        except SourceError as error:
            if isinstance(error.__cause__, NotFound):
                return {}
            raise
        return {TopicPartition(each.topic, each.partition): each.offset for each in found}

    def move_subscription(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Create a subscription at these offsets, or move it forward to them."""
        if offsets:
            rows = [(each.topic, each.partition, offset) for each, offset in sorted(offsets.items())]
            self.ask(lambda client: client.set_positions(name, rows))

    def admitted(self, name: str, starts: Mapping[TopicPartition, int], ends: Offsets) -> Offsets:
        """How far the replicator with this subscription may read now, from `starts` and up to `ends`."""
        rows = [(each.topic, each.partition, starts[each], end) for each, end in ends.items()]
        found = self.ask(lambda client: client.admissions(name, rows))
        return dict(zip(ends, found, strict=True))


def _as_listed(name: str) -> str:
    """`tenant/namespace/topic` is listed with its scheme."""
    return f"{PERSISTENT}{name}" if name.count("/") == 2 and "://" not in name else name
