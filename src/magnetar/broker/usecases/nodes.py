"""Nodes: which exist, what they coordinate and lead, and what they have on their disk.

Every client may know what it needs to connect (nodes, controller, the cluster's id), as in Kafka.
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.broker.cluster.model import Node, Nodes
from magnetar.broker.errors import (
    InvalidReplicaAssignment,
    LogDirNotFound,
    NoReassignmentInProgress,
    ReplicaNotAvailable,
    UnknownTopic,
)
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    group_resource,
    transactional_id_resource,
)
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic

_TOPICS_PER_TURN: Final = 200  # to look at


@dataclass(frozen=True, slots=True)
class LogDir:
    """What a node has in its data directory: (the topic's name for Kafka's clients, [(partition, bytes)]).

    The volume's sizes are None if the directory cannot be read.
    """

    path: str
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]
    total_bytes: int | None = None
    usable_bytes: int | None = None


class ReplicaMoves:
    """The handle of a caller that may move replicas.  None moves, because nodes share one store, so what it asks for
    succeeds only if it is so already.
    """

    __slots__ = ("_data_dir", "_kafka_topics")

    def __init__(self, kafka_topics: KafkaTopics, data_dir: str) -> None:
        self._kafka_topics = kafka_topics
        self._data_dir = data_dir

    def reassign(self, kafka_name: str, index: int, replicas: Sequence[int] | None) -> None:
        """Move a partition to the nodes `replicas`, the preferred leader first, or (None) stop moving it.

        Raises:
            InvalidTopicName, UnknownTopic, InvalidReplicaAssignment, NoReassignmentInProgress
        """
        topic = self._topic_with(kafka_name, index)
        if replicas is None:
            raise NoReassignmentInProgress(f"{kafka_name}-{index} is not being moved")
        if list(replicas) != list(topic.replicas[index]):
            raise InvalidReplicaAssignment(f"{kafka_name}-{index} stays on the nodes that it was made on")

    def to_folder(self, node: Node, path: str, kafka_name: str, index: int) -> None:
        """Move the node's replica to a data directory.

        Raises:
            LogDirNotFound, InvalidTopicName, UnknownTopic, ReplicaNotAvailable
        """
        if path != self._data_dir:
            raise LogDirNotFound(f"there is no data directory {path}")
        topic = self._topic_with(kafka_name, index)
        if node.node_id not in topic.replicas[index]:
            raise ReplicaNotAvailable(f"node {node.node_id} has no replica of {topic.name} {index}")

    def _topic_with(self, kafka_name: str, index: int) -> Topic:
        topic = self._kafka_topics.get(kafka_name)
        if not 0 <= index < topic.partition_count:
            raise UnknownTopic(f"{topic.name} has no partition {index}")
        return topic


class NodeCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        nodes: Nodes,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        cluster_id: str,
        data_dir: str,
    ) -> None:
        self._access = access
        self._nodes = nodes
        self._topics = topics
        self._kafka_topics = kafka_topics
        self.cluster_id = cluster_id
        self._data_dir = data_dir

    # --- for every client --------------------------------------------------------------------------------------------

    @property
    def all(self) -> Sequence[Node]:
        """In order of id."""
        return self._nodes.all

    @property
    def controller_id(self) -> int:
        return self._nodes.controller_id

    def operations(self, caller: Caller) -> list[Operation]:
        """What the caller may do with the cluster; an empty list if it may not describe it."""
        if not self._access.permits(caller, Operation.DESCRIBE, CLUSTER):
            return []
        return self._access.permitted(caller, CLUSTER)

    # --- coordinators ------------------------------------------------------------------------------------------------

    def group_coordinator(self, caller: Caller, group_id: str) -> Node:
        """Raises GroupNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE, group_resource(group_id))
        return self._nodes.coordinator_of(group_id)

    def transaction_coordinator(self, caller: Caller, transactional_id: str) -> Node:
        """Raises TransactionalIdNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE, transactional_id_resource(transactional_id))
        return self._nodes.coordinator_of(transactional_id)

    # --- leaders and replicas ----------------------------------------------------------------------------------------

    def quorum(self, caller: Caller) -> Node:
        """The only voter for the metadata, because there is one store.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return self._nodes.by_id[self._nodes.controller_id]

    def reassignments(self, caller: Caller) -> Sequence[tuple[str, int]]:
        """Partitions that move between nodes: none, because nodes share one store.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return ()

    def elect_leaders(
        self, caller: Caller, partitions: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], BrokerError | None]:
        """Make preferred replicas leaders.  They are, so nothing changes; partitions that do not exist get an error.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.ALTER, CLUSTER)
        return {one: self._missing(*one) for one in partitions}

    def _missing(self, kafka_name: str, index: int) -> UnknownTopic | None:
        try:
            topic = self._kafka_topics.get(kafka_name)
        except BrokerError:
            return UnknownTopic(f"No such topic as {kafka_name}")
        if not 0 <= index < topic.partition_count:
            return UnknownTopic(f"No such partition as {kafka_name}-{index}")
        return None

    # --- the disk ----------------------------------------------------------------------------------------------------

    def to_move_replicas(self, caller: Caller) -> ReplicaMoves:
        """What a caller may do that may move replicas.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.ALTER, CLUSTER)
        return ReplicaMoves(self._kafka_topics, self._data_dir)

    async def log_dir(
        self, caller: Caller, node: Node, wanted: Iterable[tuple[str, Iterable[int]]] | None
    ) -> LogDir:
        """How much the node has stored of these partitions, if they exist (None: of all), and the space on the
        volume.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        found = []
        every = self._every() if wanted is None else self._those(wanted)
        for looked_at, (kafka_name, topic, indexes) in enumerate(every, 1):
            if looked_at % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
            sizes = [
                (index, _size_bytes(topic, index))
                for index in indexes
                if 0 <= index < topic.partition_count and node.node_id in topic.replicas[index]
            ]
            if sizes:
                found.append((kafka_name, sizes))
        try:
            total, usable = await asyncio.to_thread(_volume_bytes, self._data_dir)
        except OSError:
            return LogDir(self._data_dir, found)
        return LogDir(self._data_dir, found, total, usable)

    def _every(self) -> Iterator[tuple[str, Topic, Iterable[int]]]:
        for topic in self._topics:
            if not topic.is_deleted:  # since the list began
                yield self._kafka_topics.shown(topic.name), topic, range(topic.partition_count)

    def _those(
        self, wanted: Iterable[tuple[str, Iterable[int]]]
    ) -> Iterator[tuple[str, Topic, Iterable[int]]]:
        for kafka_name, indexes in wanted:
            try:
                topic = self._kafka_topics.get(kafka_name)
            except BrokerError:
                continue  # what is not here has no size: it is left out, as Kafka does
            yield kafka_name, topic, dict.fromkeys(indexes)


def _size_bytes(topic: Topic, index: int) -> int:
    partition = topic.opened(index)
    return 0 if partition is None else partition.log.size_bytes


def _volume_bytes(directory: str) -> tuple[int, int]:
    volume = os.statvfs(directory or ".")
    return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize
