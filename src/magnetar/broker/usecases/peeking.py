"""Peeking: an administrator looks at messages of a topic: one by its id, the last one, the first one of a time.

A topic is named as Pulsar names it, and is one partition: `...-partition-3`, or a topic that is not partitioned.
"""

from collections.abc import Awaitable
from typing import NamedTuple

from magnetar.base.names import parse_partition
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.backlog import backlog_bytes
from magnetar.broker.log.opening import Opener
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, topic_resource
from magnetar.broker.subscriptions import positions
from magnetar.broker.subscriptions.admin import offset_of
from magnetar.broker.subscriptions.forms import Forms
from magnetar.broker.subscriptions.model import MessagePosition
from magnetar.broker.topics.pulsar import PulsarTopics
from magnetar.storage.store import EntryId, LedgerId


class MessageId(NamedTuple):
    """`partition` is -1 for a topic that is not partitioned, `batch_index` for a message that is no part of a batch."""

    ledger_id: int
    entry_id: int
    partition: int
    batch_index: int = -1
    batch_size: int = 0


class PeekCases:
    """See the module's text.  `opener` is for what is peeked at and compressed."""

    def __init__(
        self, access: AccessControl, pulsar_topics: PulsarTopics, forms: Forms, opener: Opener
    ) -> None:
        self._access = access
        self._pulsar_topics = pulsar_topics
        self._forms = forms
        self.opener = opener

    async def last(self, caller: Caller, topic: str) -> MessageId:
        """The last message that a consumer would get.

        Raises:
            InvalidTopicName, TopicNotAuthorized, NamespaceNotFound, UnknownTopic, StorageError
        """
        partition = self._to_read(caller, topic)
        found = await positions.last_message(partition, self._forms)
        count = found.batch_index + 1 if found.batch_index >= 0 else 0
        return MessageId(
            found.ledger_id, found.entry_id, partition_index(partition), found.batch_index, count
        )

    async def at_time(self, caller: Caller, topic: str, time_ms: int) -> MessageId:
        """The first message that was published at or after a time.  Raises as `last`."""
        partition = self._to_read(caller, topic)
        log, index = partition.log, partition_index(partition)
        entry = await log.entry_at(await positions.offset_at_time(log, time_ms))
        if entry is not None:
            return MessageId(entry.ledger_id, entry.entry_id, index)
        ledgers = list(log.ledgers)
        if not ledgers:
            return MessageId(-1, -1, index)
        return MessageId(ledgers[-1].ledger_id, ledgers[-1].entry_count, index)

    async def get(self, caller: Caller, topic: str, ledger_id: int, entry_id: int) -> Formed | None:
        """The message of an id, as Pulsar's consumers get it; None when they get none.  Raises as `last`."""
        partition = self._to_read(caller, topic)
        entry = await partition.log.locate(LedgerId(ledger_id), EntryId(entry_id))
        if entry is None or (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):
            return None
        formed = self._forms(partition, [entry])
        (one,) = await formed if isinstance(formed, Awaitable) else formed
        return one if one.payload is not None else None

    async def bytes_from(self, caller: Caller, topic: str, position: MessagePosition) -> int:
        """About how many bytes there are from a message id on.  Raises as `last`."""
        self._require(caller, Operation.DESCRIBE, topic)
        partition = self._pulsar_topics.partition(topic)
        return backlog_bytes(partition.log, await offset_of(partition, position))

    def _to_read(self, caller: Caller, topic: str) -> Partition:
        self._require(caller, Operation.READ, topic)
        return self._pulsar_topics.partition(topic)

    def _require(self, caller: Caller, operation: Operation, topic: str) -> None:
        self._access.require(caller, operation, topic_resource(parse_partition(topic)[0].full))


def partition_index(partition: Partition) -> int:
    """As message ids carry it."""
    return partition.index if partition.topic.is_partitioned else -1
