"""Topics: describe, list, create, grow, empty, delete."""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from magnetar.base.lane import cut
from magnetar.base.masking import masked
from magnetar.base.names import TopicName
from magnetar.broker.cluster.model import Node
from magnetar.broker.errors import (
    NotLeader,
    OffsetOutOfRange,
    PolicyViolation,
    TopicDeletionDisabled,
    TopicExists,
    UnknownTopic,
)
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import ConfigEntry
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.model import CLUSTER, Caller, Operation, Resource, topic_resource
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.handles import TopicHandle
from magnetar.broker.usecases.quotas import Mutations
from magnetar.broker.usecases.topic_access import TopicAccess

HIGH_WATERMARK = -1  # as an offset to delete records up to


class PlannedTopic:
    """The handle of a topic that `TopicCases.create` would create."""

    __slots__ = ("_caller", "_topic", "overrides", "partition_count", "replication_factor", "topic_id")

    def __init__(self, topic: Topic, caller: Caller) -> None:
        self._topic = topic
        self._caller = caller
        self.topic_id = topic.topic_id
        self.overrides = topic.overrides
        self.partition_count = topic.partition_count
        self.replication_factor = len(topic.replicas[0])


class TopicToDelete:
    """The handle of a topic that its caller may delete."""

    __slots__ = ("_caller", "_topic", "name", "partition_count", "topic_id")

    def __init__(self, topic: Topic, caller: Caller) -> None:
        self._topic = topic
        self._caller = caller
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.partition_count = topic.partition_count


class TopicCases:
    """See the module's text.  Names are those of Kafka's clients, except where a `TopicName` is the argument."""

    def __init__(
        self,
        topic_access: TopicAccess,
        delete_topic: Callable[[Topic], Awaitable[None]],
        *,
        may_create: bool,
        may_delete: bool,
        partition_count_default: int,
    ) -> None:
        """`delete_topic` deletes a topic with everything that belongs to it (`upkeep/topic_deletion.py`)."""
        self._topic_access = topic_access
        self._access = topic_access.access
        self._topics = topic_access.topics
        self._kafka_topics = topic_access.kafka_topics
        self._delete_topic = delete_topic
        self._may_create = may_create  # Kafka's `auto.create.topics.enable`
        self._may_delete = may_delete  # Kafka's `delete.topic.enable`
        self.partition_count_default = partition_count_default

    # --- found by name or id -----------------------------------------------------------------------------------------

    def describe(self, caller: Caller, kafka_name: str) -> TopicHandle:
        """A topic that the caller may describe.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        return self._topic_access.get(caller, Operation.DESCRIBE, kafka_name)

    def describe_by_id(self, caller: Caller, topic_id: bytes) -> TopicHandle:
        """Raises UnknownTopicId, TopicNotAuthorized."""
        return self._topic_access.get_by_id(caller, Operation.DESCRIBE, topic_id)

    @property
    def partition_count(self) -> int:
        """How many partitions all topics have, for the memory of a list of them."""
        return self._topics.limits.total

    def pages(self, caller: Caller, size: int) -> Iterator[Sequence[TopicHandle]]:
        """All topics that the caller may describe, the server's own last; for each page `size` of all are looked at.

        Others may have turns between two pages.  A topic that exists all the while is in exactly one of them.
        """
        for looked_at in cut(self._kafka_topics, size):
            yield [
                topic
                for topic in looked_at
                if not topic.is_deleted and self._access.permits(caller, Operation.DESCRIBE, topic.resource)
            ]

    def operations(self, caller: Caller, kafka_name: str) -> Sequence[Operation]:
        """What the caller may do with a topic, whether it exists or not.

        Raises:
            InvalidTopicName
        """
        topic = self._kafka_topics.find(kafka_name)
        if topic is None:
            return self._access.permitted(caller, topic_resource(self._kafka_topics.name(kafka_name).full))
        return self._access.permitted(caller, topic.resource)

    # --- made --------------------------------------------------------------------------------------------------------

    def to_create(self, caller: Caller, name: TopicName) -> None:
        """Check that the caller may create a topic.  A caller that may create topics in the cluster may create any,
        as in Kafka.

        Raises:
            TopicNotAuthorized
            TopicExists: it is one of the server's own.
        """
        self._require_creation(caller, name)
        if self._kafka_topics.internal.find(name) is not None:
            raise TopicExists(f"Topic '{name.local}' already exists.")

    def plan(
        self, caller: Caller, wanted: NewTopic, planned: Counter[str], mutations: Mutations
    ) -> PlannedTopic:
        """A topic as `create` would create it, after `to_create`: checked but not stored; its partitions count as
        created.

        `planned` counts, by namespace, the partitions that the same `create` creates; this topic's are added.

        Raises:
            TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidConfig,
            TooManyTopics, QuotaExceeded
        """
        with self._access.record(caller, Change.TOPIC_CREATE, topic_resource(wanted.name.full)) as recording:
            topic = self._topics.plan(wanted, planned)
            mutations.count(topic.partition_count)
            recording.is_none()
        return PlannedTopic(topic, caller)

    async def create(self, planned: Sequence[PlannedTopic]) -> None:
        """Store topics from `plan`, all in one step.

        Raises:
            TopicExists, TooManyTopics: another client was faster.
            MetadataError
        """
        recordings = [self._creation(one) for one in planned]
        async with self._access.record_each(recordings):
            await self._topics.create([one._topic for one in planned])

    def _creation(self, planned: PlannedTopic) -> Recording:
        return self._access.record(
            planned._caller,
            Change.TOPIC_CREATE,
            planned._topic.resource,
            partitions=planned.partition_count,
            set=masked(planned.overrides),
        )

    async def ensure(self, caller: Caller, kafka_name: str, mutations: Mutations) -> TopicHandle:
        """The topic, created with the defaults if it does not exist; its partitions then count as created.

        Raises:
            UnknownTopic: the server's settings do not let clients create topics by asking for them.
            InvalidTopicName, TopicNotAuthorized, InvalidReplicationFactor, TooManyTopics, QuotaExceeded,
            MetadataError
        """
        # Before the right: Kafka asks for the right only if it would create the topic.
        if not self._may_create:
            raise UnknownTopic(f"Topic '{kafka_name}' does not exist.")
        name = self._kafka_topics.name(kafka_name)
        self._require_creation(caller, name)
        was_there = self._topics.find(name) is not None
        if not was_there:
            mutations.count(self.partition_count_default)
        topic = await self._topics.ensure(name)
        if not was_there:
            await self._access.note(caller, Change.TOPIC_CREATE, topic.resource, automatic=True)
        return topic

    def _require_creation(self, caller: Caller, name: TopicName) -> None:
        if not self._access.permits(caller, Operation.CREATE, CLUSTER):
            self._access.require(caller, Operation.CREATE, topic_resource(name.full))

    def exists(self, name: TopicName) -> bool:
        """Whether the topic exists: Kafka checks that after the right, so call `to_create` first."""
        return self._topics.find(name) is not None

    def may_describe_configs(self, caller: Caller, name: TopicName) -> bool:
        """Whether the caller may see the settings of the topic that it creates."""
        return self._access.permits(caller, Operation.DESCRIBE_CONFIGS, topic_resource(name.full))

    def default_settings(self, overrides: Mapping[str, str]) -> Sequence[ConfigEntry]:
        """All settings of a topic that sets these itself."""
        return self._topics.defaults.describe(overrides)

    # --- changed and deleted -----------------------------------------------------------------------------------------

    async def grow(
        self,
        caller: Caller,
        kafka_name: str,
        count: int,
        replicas: Sequence[Sequence[int]] | None,
        mutations: Mutations,
        *,
        validate_only: bool,
    ) -> None:
        """Add partitions until there are `count`; `replicas` assigns the new ones, and they count as created.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic, InvalidPartitions,
            InvalidReplicaAssignment, QuotaExceeded, MetadataError
        """
        topic = self._topic_access.get(caller, Operation.ALTER, kafka_name)
        async with (
            self._access.record(caller, Change.TOPIC_GROW, topic.resource, partitions=count) as recording,
            self._topics.changing(topic),
        ):
            planned = self._topics.plan_partitions(topic, count, replicas)
            mutations.count(len(planned) - topic.partition_count)
            if validate_only:
                recording.is_none()
            else:
                await self._topics.add_partitions(topic, planned)

    def check_deletion(self) -> None:
        """Check that clients may delete topics at all.  As in Kafka, all callers get the same answer.

        Raises:
            TopicDeletionDisabled
        """
        if not self._may_delete:
            raise TopicDeletionDisabled("Topic deletion is disabled.")

    def to_delete(self, caller: Caller, kafka_name: str) -> TopicToDelete:
        """A topic for `delete`.

        Raises:
            TopicDeletionDisabled, InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        self.check_deletion()
        return TopicToDelete(self._topic_access.get(caller, Operation.DELETE, kafka_name), caller)

    def to_delete_by_id(self, caller: Caller, topic_id: bytes) -> TopicToDelete:
        """Raises TopicDeletionDisabled, UnknownTopicId, TopicNotAuthorized."""
        self.check_deletion()
        return TopicToDelete(self._topic_access.get_by_id(caller, Operation.DELETE, topic_id), caller)

    async def delete(self, topic: TopicToDelete, mutations: Mutations) -> None:
        """Delete what `to_delete` found, with everything that belongs to it; its partitions count as deleted.

        Raises:
            InternalTopic, UnknownTopic, QuotaExceeded, MetadataError
        """
        async with self._access.record(topic._caller, Change.TOPIC_DELETE, topic._topic.resource):
            mutations.count(topic.partition_count)
            await self._delete_topic(topic._topic)

    def delete_records(
        self, caller: Caller, node: Node, kafka_name: str, index: int, offset: int
    ) -> Coroutine[Any, Any, int]:
        """Delete the records before `offset` of a partition that `node` leads (HIGH_WATERMARK: all records), KIP-107.

        The call checks the right and the partition at once; awaited, it returns where the log then begins.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic, NotLeader, StorageError
            PolicyViolation: the topic is compacted, and nothing else.
            OffsetOutOfRange, MetadataError
        """
        topic = self._topic_access.get(caller, Operation.DELETE, kafka_name)
        topic.check_changeable()
        partition = topic.partition(index)
        if partition.leader_id != node.node_id:
            raise NotLeader(f"node {node.node_id} does not lead {topic.name} {index}")
        return self._delete_below(caller, topic.resource, partition, offset)

    async def _delete_below(
        self, caller: Caller, resource: Resource, partition: Partition, offset: int
    ) -> int:
        async with self._access.record(
            caller,
            Change.TOPIC_DELETE_RECORDS,
            resource,
            partition=partition.index,
            below=offset,
        ):
            log = partition.log
            if partition.topic.config.compact and not partition.topic.config.delete:
                raise PolicyViolation(
                    "records of a topic with cleanup.policy=compact are not deleted by offset"
                )
            target = log.high_watermark if offset == HIGH_WATERMARK else offset
            if not 0 <= target <= log.high_watermark:
                raise OffsetOutOfRange(f"offset {offset} is not between 0 and {log.high_watermark}")
            return await log.trim(log_start=target)
