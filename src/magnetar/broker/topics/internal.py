"""`__consumer_offsets` and `__transaction_state`: topics that Kafka's tools look for, and that have no records here.

Committed offsets and transactions are metadata.  Clients are shown the two topics all the same, marked as internal, as
soon as there is a group or a transactional id: with the settings and the number of partitions that they have in Kafka,
and empty.  They can be described, listed and read, so that a client that takes every topic goes on undisturbed; no
client can write to, grow, change or delete them.

They are made in memory, by each start anew, under ids that stay the same; the registry knows them by these ids alone,
so that neither housekeeping nor Pulsar's clients see them.  A topic that a client has made under one of the names is
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
    """See the module's text.  `in_use` tells of each name whether there is something that Kafka would keep there."""

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
        """Those that are shown now; one that was shown once stays."""
        return [topic for local in _CONFIGS if (topic := self._find(local)) is not None]

    def find(self, name: TopicName) -> Topic | None:
        """The internal topic of this name, if it is shown."""
        if name.local not in _CONFIGS or name != self._name_of(name.local):
            return None
        return self._find(name.local)

    def _find(self, local: str) -> Topic | None:
        name = self._name_of(local)
        if self._topics.find(name) is not None:
            return None
        if local not in self._made and self._in_use[local]():
            topic_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._cluster_id}/{local}").bytes
            self._made[local] = self._topics.make_internal(name, topic_id, PARTITIONS, _CONFIGS[local])
        return self._made.get(local)
