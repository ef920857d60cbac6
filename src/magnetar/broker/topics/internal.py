"""`__consumer_offsets` and `__transaction_state`: topics that Kafka's tools look for, and that have no records here.

Committed offsets and transactions are metadata.  Clients see the two topics all the same, marked as internal, as soon
as there is a group or a transactional id.  The topics have the settings and the number of partitions that they have in
Kafka, and are empty.  Clients can describe, list and read them, so that a client that reads every topic works; no
client can write to, grow, change or delete them.

Each start makes them in memory, with ids that stay the same.  The registry knows them by these ids only, so neither
housekeeping nor Pulsar's clients see them.  If a client has created a topic with one of the names, the name means
that topic.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
PARTITIONS: Final = 50  # Kafka's offsets.topic.num.partitions and transaction.state.log.num.partitions
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
_CONFIGS: Final[Mapping[str, Mapping[str, str]]] = {
    CONSUMER_OFFSETS: {**_COMPACTED, "compression.type": "producer"},
    TRANSACTION_STATE: {**_COMPACTED, "compression.type": "uncompressed"},
}


class InternalTopics:
    """See the module's text.  `in_use` says for each name whether Kafka would store something in it."""

    def __init__(
        self,
        topics: TopicRegistry,
        name_of: Callable[[str], TopicName],
        cluster_id: str,
        in_use: Mapping[str, Callable[[], bool]],
    ) -> None:
        self._topics = topics
        self._name_of = name_of
        self._cluster_id = cluster_id
        self._in_use = in_use
        self._made: dict[str, Topic] = {}

    def present(self) -> list[Topic]:
        """The topics that clients see now; one that was shown once stays."""
        return [topic for local in _CONFIGS if (topic := self._find(local)) is not None]

    def has(self, name: TopicName) -> bool:
        """Whether this is the name of an internal topic, which clients may see or not."""
        return name.local in _CONFIGS and name == self._name_of(name.local)

    def find(self, name: TopicName) -> Topic | None:
        """The internal topic with this name, if clients see it."""
        return self._find(name.local) if self.has(name) else None

    def _find(self, local: str) -> Topic | None:
        name = self._name_of(local)
        if self._topics.find(name) is not None:
            return None
        if local not in self._made and self._in_use[local]():
            topic_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._cluster_id}/{local}").bytes
            self._made[local] = self._topics.make_internal(name, topic_id, PARTITIONS, _CONFIGS[local])
        return self._made.get(local)
