"""Topics as Kafka's clients find them, by the names of `kafka_names.py`.

In addition to stored topics there are two of the server's own (`internal.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

from magnetar.broker.errors import UnknownTopic
from magnetar.broker.topics.internal import InternalTopics
from magnetar.broker.topics.kafka_names import KafkaTopicNames
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic

_KEPT_MAX: Final = 100_000


class KafkaTopics:
    """See the module's text.  `in_use` is for the internal topics."""

    def __init__(
        self,
        topics: TopicRegistry,
        names: KafkaTopicNames,
        cluster_id: str,
        in_use: Mapping[str, Callable[[], bool]],
    ) -> None:
        self._topics = topics
        self.name: Final = names.name
        self.shown: Final = names.shown
        self.full_name_or_itself: Final = names.full_name_or_itself
        self.home: Final = names.home
        self.internal = InternalTopics(topics, names.name, cluster_id, in_use)
        self._found: dict[str, Topic] = {}  # by the names that clients use for them

    def __iter__(self) -> Iterator[Topic]:
        """All topics, the internal ones last."""
        return chain(self._topics, self.internal.present())

    def find(self, kafka_name: str) -> Topic | None:
        """The topic that a client means; None if there is none.  A name that was found before costs one look-up.

        Raises:
            InvalidTopicName
        """
        topic = self._found.get(kafka_name)
        if topic is None or topic.is_deleted:
            name = self.name(kafka_name)
            topic = self._topics.find(name) or self.internal.find(name)
            if topic is None or topic.is_internal:
                return topic  # not kept: a topic of that name may still be made
            if len(self._found) >= _KEPT_MAX:
                self._found.clear()
            self._found[kafka_name] = topic
        return topic

    def get(self, kafka_name: str) -> Topic:
        """As `find`; raises UnknownTopic if there is none."""
        topic = self.find(kafka_name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {self.name(kafka_name)}")
        return topic

    def forget(self, topic: Topic) -> None:
        """The topic is deleted: its names may mean another one later."""
        for name in [name for name, one in self._found.items() if one is topic]:
            del self._found[name]
