"""Reading: what Kafka's clients fetch from topics, in the form of their protocol."""

from collections.abc import Hashable
from typing import Final

from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.lookups import TimeLookups
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.model import Caller, Operation
from magnetar.broker.usecases.handles import PartitionHandle, ReadableTopic
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.wire.kafka.record_scan import Stamped

_READ: Final = Operation.READ  # asked for with each request, without a look into the class


class OffsetLookup:
    """The handle of a partition for look-ups of offsets by time, on behalf of `owner`."""

    __slots__ = ("_lookups", "_partition")

    def __init__(self, partition: Partition, lookups: TimeLookups) -> None:
        self._partition = partition
        self._lookups = lookups

    @property
    def partition(self) -> PartitionHandle:
        return self._partition

    async def first_at(self, timestamp_ms: int, owner: Hashable) -> Stamped | None:
        """As `TimeLookups.first_at`."""
        return await self._lookups.first_at(self._partition, timestamp_ms, owner)

    async def newest(self, owner: Hashable) -> Stamped | None:
        """As `TimeLookups.newest`."""
        return await self._lookups.newest(self._partition, owner)


class ReadCases:
    """See the module's text.  What a caller reads passes through `kafka_form`, or through `kafka_form_later` if that
    has to wait.
    """

    def __init__(
        self,
        topic_access: TopicAccess,
        interop: Interop,
        lookups: TimeLookups,
    ) -> None:
        self._topic_access = topic_access
        self.kafka_form = interop.kafka_form
        self.kafka_form_later = interop.kafka_form_later
        self._lookups = lookups

    def to_read(self, caller: Caller, kafka_name: str) -> ReadableTopic:
        """A topic whose records, or whose producers, the caller may see.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic
        """
        return self._topic_access.get(caller, _READ, kafka_name)

    def to_read_by_id(self, caller: Caller, topic_id: bytes) -> ReadableTopic:
        """As `to_read`; UnknownTopicId when no topic has this id."""
        return self._topic_access.get_by_id(caller, _READ, topic_id)

    def to_look_up(self, caller: Caller, kafka_name: str, index: int) -> OffsetLookup:
        """A partition for a caller that looks up offsets: the right to describe a topic includes them.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, StorageError
        """
        partition = self._topic_access.get(caller, Operation.DESCRIBE, kafka_name).partition(index)
        return OffsetLookup(partition, self._lookups)
