"""Topics: described, listed, made, grown, emptied, deleted."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from magnetar.base.names import TopicName
from magnetar.broker.errors import OffsetOutOfRange, PolicyViolation, TopicExists
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import ConfigEntry
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, topic_resource
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.topic_access import TopicAccess

HIGH_WATERMARK = -1  # as an offset to delete records up to


class TopicCases:
    """See the module's text.  Names are as Kafka's clients write them, unless a `TopicName` is asked for."""

    def __init__(
        self,
        access: AccessControl,
        topic_access: TopicAccess,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        delete_topic: Callable[[Topic], Awaitable[None]],
        *,
        may_create: bool,
        may_delete: bool,
        partition_count_default: int,
    ) -> None:
        self._access = access
        self._topic_access = topic_access
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._delete_topic = delete_topic
        self.makes_what_is_missing = may_create  # Kafka's `auto.create.topics.enable`
        self.may_delete = may_delete  # Kafka's `delete.topic.enable`
        self.partition_count_default = partition_count_default

    # --- found by name or id -----------------------------------------------------------------------------------------

    def describe(self, caller: Caller, kafka_name: str) -> Topic:
        """A topic, to be described.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        return self._topic_access.get(caller, Operation.DESCRIBE, kafka_name)

    def describe_by_id(self, caller: Caller, topic_id: bytes) -> Topic:
        """Raises UnknownTopicId, TopicNotAuthorized."""
        return self._topic_access.get_by_id(caller, Operation.DESCRIBE, topic_id)

    def list(self, caller: Caller) -> Iterable[Topic]:
        """All topics that the caller may describe, the server's own last."""
        for topic in self._kafka_topics:
            if self._access.permits(caller, Operation.DESCRIBE, topic.resource):
                yield topic

    def operations(self, caller: Caller, kafka_name: str) -> Sequence[Operation]:
        """What the caller may do to a topic, existing or not.

        Raises:
            InvalidTopicName
        """
        topic = self._kafka_topics.find(kafka_name)
        if topic is None:
            return self._access.permitted(caller, topic_resource(self._kafka_topics.name(kafka_name).full))
        return self._access.permitted(caller, topic.resource)

    # --- made --------------------------------------------------------------------------------------------------------

    def to_create(self, caller: Caller, name: TopicName) -> None:
        """The right to make a topic; a caller that may make topics in the cluster may make any, as in Kafka.

        Raises:
            TopicNotAuthorized
            TopicExists: it is one of the server's own.
        """
        self._require_creation(caller, name)
        if self._kafka_topics.internal.find(name) is not None:
            raise TopicExists(f"Topic '{name.local}' already exists.")

    def plan(self, wanted: NewTopic, planned: Counter[str]) -> Topic:
        """A topic as `create` would make it, after `to_create`: checked but not stored.

        `planned` counts, by namespace, the partitions that the same `create` makes; the topic's join them.

        Raises:
            TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidConfig,
            TooManyTopics
        """
        return self._topics.plan(wanted, planned)

    async def create(self, planned: Sequence[Topic]) -> None:
        """Store topics that `plan` has made, all in one step.

        Raises:
            TopicExists, TooManyTopics: another client was faster.
            MetadataError
        """
        await self._topics.create(planned)

    async def ensure(self, caller: Caller, kafka_name: str) -> Topic:
        """The topic, made with the defaults if it is not there.

        Raises:
            InvalidTopicName, TopicNotAuthorized, InvalidReplicationFactor, TooManyTopics, MetadataError
        """
        name = self._kafka_topics.name(kafka_name)
        self._require_creation(caller, name)
        return await self._topics.ensure(name)

    def _require_creation(self, caller: Caller, name: TopicName) -> None:
        if not self._access.permits(caller, Operation.CREATE, CLUSTER):
            self._access.require(caller, Operation.CREATE, topic_resource(name.full))

    def exists(self, name: TopicName) -> bool:
        """For the order in which Kafka finds faults, behind `to_create`."""
        return self._topics.find(name) is not None

    def may_describe_configs(self, caller: Caller, name: TopicName) -> bool:
        """Whether the caller is shown the settings of the topic that it makes."""
        return self._access.permits(caller, Operation.DESCRIBE_CONFIGS, topic_resource(name.full))

    def default_settings(self, overrides: Mapping[str, str]) -> Sequence[ConfigEntry]:
        """The settings of a topic that has these of its own."""
        return self._topics.defaults.describe(overrides)

    # --- changed and deleted -----------------------------------------------------------------------------------------

    async def grow(
        self,
        caller: Caller,
        kafka_name: str,
        count: int,
        replicas: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool,
    ) -> None:
        """Add partitions until there are `count`; `replicas` assigns the new ones.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic, InvalidPartitions,
            InvalidReplicaAssignment, MetadataError
        """
        topic = self._topic_access.get(caller, Operation.ALTER, kafka_name)
        async with self._topics.changing(topic):
            planned = self._topics.plan_partitions(topic, count, replicas)
            if not validate_only:
                await self._topics.add_partitions(topic, planned)

    def to_delete(self, caller: Caller, kafka_name: str) -> Topic:
        """A topic for `delete`.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        return self._topic_access.get(caller, Operation.DELETE, kafka_name)

    def to_delete_by_id(self, caller: Caller, topic_id: bytes) -> Topic:
        """Raises UnknownTopicId, TopicNotAuthorized."""
        return self._topic_access.get_by_id(caller, Operation.DELETE, topic_id)

    async def delete(self, topic: Topic) -> None:
        """Delete what `to_delete` has found, with everything that belongs to it.

        Raises:
            InternalTopic, UnknownTopic, MetadataError
        """
        await self._delete_topic(topic)

    def to_empty(self, caller: Caller, kafka_name: str, index: int) -> Partition:
        """A partition for `delete_records`.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, InternalTopic, StorageError
        """
        topic = self._topic_access.get(caller, Operation.DELETE, kafka_name)
        topic.check_changeable()
        return topic.partition(index)

    async def delete_records(self, partition: Partition, offset: int) -> int:
        """Delete what lies before `offset` (HIGH_WATERMARK: everything), KIP-107; where the log begins then.

        Raises:
            PolicyViolation: the topic is compacted, and nothing else.
            OffsetOutOfRange, StorageError, MetadataError
        """
        log = partition.log
        if partition.topic.config.compact and not partition.topic.config.delete:
            raise PolicyViolation("records of a topic with cleanup.policy=compact are not deleted by offset")
        target = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= target <= log.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not between 0 and {log.high_watermark}")
        return await log.trim(log_start=target)
