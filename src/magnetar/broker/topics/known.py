"""The topics that a broker knows, by full name and by id: those that are stored, and those that other brokers make.

`registry.py` makes and changes topics.  In a cluster each broker hears of what the others do (`_learn`), in the order
in which the metadata store reports it.
"""

import uuid
from collections.abc import Iterator

from magnetar.base.names import TopicName
from magnetar.broker.errors import UnknownTopic, UnknownTopicId
from magnetar.broker.log.partition import Partition
from magnetar.broker.topics.logs import limits_of
from magnetar.broker.topics.namespace_limits import NamespaceLimits
from magnetar.broker.topics.observers import TopicsObservers
from magnetar.broker.topics.topic import Topic


class KnownTopics:
    """See the module's text.  `limits` also count the topics of each namespace; `observers` hear of topics that come
    and go.
    """

    def __init__(self, limits: NamespaceLimits, observers: TopicsObservers) -> None:
        self.limits = limits
        self.observers = observers
        self.changes = 0  # how often topics were made or deleted, or got partitions
        self._by_name: dict[TopicName, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._ids: dict[str, bytes] = {}  # by full name

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def find(self, name: TopicName) -> Topic | None:
        return self._by_name.get(name)

    def get(self, name: TopicName) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def get_by_id(self, topic_id: bytes) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {uuid.UUID(bytes=topic_id)}")
        return topic

    def find_partition(self, full_name: str, index: int) -> Partition | None:
        """The partition of the topic that has the name now; None if there is none."""
        topic = self._by_name.get(TopicName.parse(full_name))
        return topic.partition(index) if topic is not None and index < topic.partition_count else None

    def id_of(self, full_name: str) -> bytes | None:
        """The id of the topic that has the name now."""
        return self._ids.get(full_name)

    def identity(self, full_name: str) -> str:
        """The id, in hex, of the topic that has the name now; raises UnknownTopic if there is none."""
        found = self._ids.get(full_name)
        if found is None:
            raise UnknownTopic(f"there is no topic {full_name}")
        return found.hex()

    def _register(self, topic: Topic) -> None:
        self.changes += 1
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._ids[topic.resource.name] = topic.topic_id

    def _unregister(self, topic: Topic) -> None:
        topic.is_deleted = True
        self.changes += 1
        self.limits.add(topic.name, -topic.partition_count)
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        del self._ids[topic.resource.name]

    def _resize(self, topic: Topic, replicas: list[list[int]]) -> None:
        """The topic has these partitions now; observers hear of the new ones."""
        is_changed = len(replicas) != topic.partition_count
        before = topic.pulsar_names if self.observers and is_changed else None
        self.limits.add(topic.name, len(replicas) - topic.partition_count)
        self.changes += is_changed
        topic.replicas = replicas
        if len(replicas) > 1:
            topic.is_partitioned = True  # Kafka can add partitions to any topic
        if before is not None:
            after = topic.pulsar_names
            self.observers.tell(sorted({*before} - {*after}), sorted({*after} - {*before}))

    # --- what other brokers do ---------------------------------------------------------------------------------------

    def _learn(self, name: TopicName, stored: Topic | None) -> None:
        """This is stored of a topic now; None: there is none of the name."""
        known = self._by_name.get(name)
        if known is not None and (stored is None or stored.topic_id != known.topic_id):
            self._forget(known)
            known = None
        if stored is None:
            return
        if known is None:
            self._register(stored)
            self.limits.add(name, stored.partition_count)
            self.observers.tell([], stored.pulsar_names)
        elif known.version < stored.version:
            self._adopt(known, stored)

    def _adopt(self, topic: Topic, stored: Topic) -> None:
        """Another broker has changed a topic."""
        topic.version, topic.overrides, topic.config = stored.version, stored.overrides, stored.config
        topic.is_terminated = stored.is_terminated
        for partition in topic.open_partitions:
            partition.log.limits = limits_of(topic.config)
            partition.is_terminated = topic.is_terminated
        self._resize(topic, stored.replicas)

    def _forget(self, topic: Topic) -> None:
        """Another broker has deleted a topic."""
        self._unregister(topic)
        for partition in topic.open_partitions:
            partition.close()
        self.observers.tell(topic.pulsar_names, [])
