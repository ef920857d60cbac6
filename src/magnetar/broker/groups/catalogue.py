"""The broker's topics, as groups see them."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from magnetar.base.names import TopicName
from magnetar.broker.errors import UnknownTopicId
from magnetar.broker.topics.kafka_names import KafkaTopicNames
from magnetar.broker.topics.registry import TopicRegistry


class TopicCatalogue(Protocol):
    """What groups need to know about topics; names are full names."""

    @property
    def changes(self) -> int:
        """Grows whenever a topic is made or deleted, or gets partitions, and when rights change."""
        ...

    @property
    def rights_changes(self) -> int:
        """Grows whenever rights change."""
        ...

    def exists(self, topic: str, partition: int) -> bool: ...

    def found(self, topic: str) -> tuple[bytes, int] | None:
        """A topic's id, and how many partitions it has; None if it does not exist."""
        ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def shown_name(self, topic_id: bytes) -> str | None:
        """The name that clients see; None if there is no such topic."""
        ...

    def shown(self) -> Iterable[tuple[str, str]]:
        """The full name of each topic except the server's own, and the name that clients see."""
        ...


class Rights(Protocol):
    """What counts changes of rights."""

    @property
    def changes(self) -> int: ...


class RegistryCatalogue:
    """A `TopicCatalogue` over the topic registry."""

    def __init__(self, topics: TopicRegistry, names: KafkaTopicNames, rights: Rights) -> None:
        self._topics = topics
        self._shown = names.shown
        self._rights = rights

    @property
    def changes(self) -> int:
        return self._topics.changes + self._rights.changes

    @property
    def rights_changes(self) -> int:
        return self._rights.changes

    def found(self, topic: str) -> tuple[bytes, int] | None:
        topic_id = self._topics.id_of(topic)
        return None if topic_id is None else (topic_id, self._topics.get_by_id(topic_id).partition_count)

    def name_of(self, topic_id: bytes) -> str | None:
        try:
            return self._topics.get_by_id(topic_id).name.full
        except UnknownTopicId:
            return None

    def shown_name(self, topic_id: bytes) -> str | None:
        try:
            return self._shown(self._topics.get_by_id(topic_id).name)
        except UnknownTopicId:
            return None

    def shown(self) -> Iterator[tuple[str, str]]:
        return ((topic.resource.name, self._shown(topic.name)) for topic in self._topics)

    def exists(self, topic: str, partition: int) -> bool:
        found = self._topics.find(TopicName.parse(topic))
        return found is not None and 0 <= partition < found.partition_count
