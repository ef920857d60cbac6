"""What an administrator does to a whole topic: unload, terminate, trim, truncate, compact beside its log."""

from collections.abc import Awaitable, Callable, Sequence

from magnetar.base.names import TopicName, parse_partition
from magnetar.broker.compaction.beside import CompactorBeside
from magnetar.broker.compaction.errors import CompactionRunning
from magnetar.broker.errors import UnknownTopic
from magnetar.broker.log.model import CompactionFigures
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, topic_resource
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.forms import Forms
from magnetar.broker.topics.errors import WrongKindOfTopic
from magnetar.broker.topics.pulsar import PulsarTopics, partition_index
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.peeking import MessageId


class TopicStateCases:
    """See the module's text.  `unload`, `truncate` and `retain` are the broker's, for one partition."""

    def __init__(
        self,
        access: AccessControl,
        topics: TopicRegistry,
        pulsar_topics: PulsarTopics,
        forms: Forms,
        unload: Callable[[Partition], Awaitable[None]],
        truncate: Callable[[Partition], Awaitable[None]],
        beside: CompactorBeside,
        retain: Callable[[Topic, Partition], Awaitable[None]],
    ) -> None:
        self._access = access
        self._topics = topics
        self._pulsar_topics = pulsar_topics
        self._forms = forms
        self._unload = unload
        self._truncate = truncate
        self._beside = beside
        self._retain = retain

    async def unload(self, caller: Caller, topic: str) -> None:
        """Close the producers and consumers of a topic, or of one partition, after storing positions; they reconnect.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic
        """
        async with self._change(caller, Operation.ALTER, topic, Change.TOPIC_UNLOAD):
            for partition in self._pulsar_topics.partitions(topic):
                await self._unload(partition)

    async def truncate(self, caller: Caller, topic: str) -> None:
        """Delete all messages of a topic, or of one partition, acknowledged or not.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, StorageError, MetadataError
        """
        async with self._change(caller, Operation.DELETE, topic, Change.TOPIC_TRUNCATE):
            for partition in self._pulsar_topics.partitions(topic):
                await self._truncate(partition)

    async def trim(self, caller: Caller, topic: str) -> None:
        """Delete now what retention allows, of a topic or of one partition: whole ledgers.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, StorageError, MetadataError
            WrongKindOfTopic: it stores nothing.
        """
        async with self._change(caller, Operation.DELETE, topic, Change.TOPIC_TRIM):
            name, _ = parse_partition(topic)
            if not name.persistent:
                raise WrongKindOfTopic("Trim on a non-persistent topic is not allowed")
            for partition in self._pulsar_topics.partitions(topic):
                await self._retain(self._pulsar_topics.get(name), partition)

    async def terminate(self, caller: Caller, topic: TopicName, *, partitioned: bool) -> Sequence[MessageId]:
        """Accept no more messages, for good; returns the last one of each partition.

        Raises:
            TopicNotAuthorized, NamespaceNotFound, UnknownTopic, StorageError, MetadataError
            WrongKindOfTopic: it is partitioned and `partitioned` says that it is not, or the reverse.
        """
        async with self._access.change(
            caller, Operation.ALTER, topic_resource(topic.full), Change.TOPIC_TERMINATE
        ):
            found = self._pulsar_topics.get(topic)
            if found.is_partitioned is not partitioned:
                raise WrongKindOfTopic(f"{topic.full} is {'' if found.is_partitioned else 'not '}partitioned")
            await self._topics.terminate(found)
            return [await self._end(found, index) for index in range(found.partition_count)]

    async def compact(self, caller: Caller, topic: str) -> None:
        """Start Pulsar's compaction in the background, of a topic or of one partition.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic
            CompactionRunning: it runs for one of them, and has begun for the others.
        """
        async with self._change(caller, Operation.ALTER, topic, Change.TOPIC_COMPACT):
            refused = ""
            for partition in self._pulsar_topics.partitions(_persistent(topic)):
                try:
                    self._beside.start(partition)
                except CompactionRunning as error:
                    refused = str(error)
            if refused:
                raise CompactionRunning(refused)

    def compaction(self, caller: Caller, topic: str) -> CompactionFigures:
        """The state of Pulsar's compaction, of a partition or of a topic without partitions.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound
            UnknownTopic: there is none, or it has partitions: each has its own.
        """
        name, index = parse_partition(topic)
        self._access.require(caller, Operation.DESCRIBE, topic_resource(name.full))
        found = self._pulsar_topics.partitions(_persistent(topic))
        if index < 0 and self._pulsar_topics.get(name).is_partitioned:
            raise UnknownTopic(f"Topic {name.full} not found")
        (partition,) = found
        return partition.compaction

    def _change(self, caller: Caller, operation: Operation, topic: str, change: Change) -> Recording:
        name, index = parse_partition(topic)
        details = {} if index < 0 else {"partition": index}
        return self._access.change(caller, operation, topic_resource(name.full), change, **details)

    async def _end(self, topic: Topic, index: int) -> MessageId:
        partition = topic.partition(index)
        last = await positions.last_message(partition, self._forms)
        return MessageId(last.ledger_id, last.entry_id, partition_index(partition))


def _persistent(topic: str) -> str:
    """The topic; raises UnknownTopic if it stores nothing, and so has nothing to compact."""
    if not parse_partition(topic)[0].persistent:
        raise UnknownTopic(f"Topic {topic} not found")
    return topic
