"""Topics as Kafka's clients name and find them.

A client may leave tenant and namespace out: it is at home in one namespace.  What it is shown for a topic is what it
may say: see `base/names.py`.  Beside the topics that are stored there are two of the server's own (`internal.py`).
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.topics.internal import InternalTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic

_KEPT_MAX: Final = 100_000


class KafkaTopics:
    """See the module's text.  `tenant` and `namespace` are the clients' own; `in_use` is for the internal topics."""

    def __init__(
        self,
        topics: TopicRegistry,
        tenant: str,
        namespace: str,
        cluster_id: str,
        in_use: Mapping[str, Callable[[], bool]],
    ) -> None:
        self._topics = topics
        self._tenant = tenant
        self._namespace = namespace
        self.internal = InternalTopics(topics, self.name, cluster_id, in_use)
        self._found: dict[str, Topic] = {}  # by the names that clients use for them

    def __iter__(self) -> Iterator[Topic]:
        """All of them, the internal ones last."""
        return chain(self._topics, self.internal.present())

    def name(self, kafka_name: str) -> TopicName:
        """The topic that a client means; InvalidTopicName (a BrokerError) when the name cannot be one."""
        return TopicName.parse(kafka_name, self._tenant, self._namespace)

    @property
    def home(self) -> str:
        """The clients' own namespace, as `tenant/namespace`."""
        return f"{self._tenant}/{self._namespace}"

    def shown(self, name: TopicName) -> str:
        """What a client is shown."""
        return name.kafka_name(self._tenant, self._namespace)

    def full_name_or_itself(self, kafka_name: str) -> str:
        """For names in what a client tells its group, which need not be names of topics."""
        try:
            return self.name(kafka_name).full
        except InvalidTopicName:
            return kafka_name

    def find(self, kafka_name: str) -> Topic | None:
        """The topic that a client means, found by one look-up when it was found before; None when there is none.

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
        """As `find`; UnknownTopic when there is none."""
        topic = self.find(kafka_name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {self.name(kafka_name)}")
        return topic

    def forget(self, topic: Topic) -> None:
        """It is deleted: its names may come to stand for another one."""
        for name in [name for name, one in self._found.items() if one is topic]:
            del self._found[name]
