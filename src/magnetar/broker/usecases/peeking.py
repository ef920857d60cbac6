"""Peeking: an administrator looks at messages of a topic: one by its id, the last one, the first one of a time.

A topic has its Pulsar name, and is one partition: `...-partition-3`, or a topic that is not partitioned.
"""

from collections.abc import Awaitable, Sequence
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
from magnetar.broker.topics.errors import EmptyTopic
from magnetar.broker.topics.pulsar import PulsarTopics, partition_index
from magnetar.ledger.entry import Entry
from magnetar.storage.store import EntryId, LedgerId


class MessageId(NamedTuple):
    """`partition` is -1 for a topic that is not partitioned, and `batch_index` for a message outside of a batch."""

    ledger_id: int
    entry_id: int
    partition: int
    batch_index: int = -1
    batch_size: int = 0


class PeekCases:
    """See the module's text.  `opener` decompresses what the administrator peeks at."""

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
        """The first message published at or after a time.  Raises as `last`."""
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
        """The message with an id, as Pulsar's consumers get it; None if they get none.  Raises as `last`."""
        partition = self._to_read(caller, topic)
        entry = await partition.log.locate(LedgerId(ledger_id), EntryId(entry_id))
        if entry is None or (entry.ledger_id, entry.entry_id) != (ledger_id, entry_id):
            return None
        return await self._formed(partition, entry)

    async def examine(self, caller: Caller, topic: str, number: int, *, from_start: bool) -> Formed | None:
        """The `number`-th entry, from 1, counted from the first or the last one; the outermost one if there are
        fewer.  None if consumers get nothing of it.

        Raises as `last`; also:
            WrongKindOfTopic: it is partitioned.
            EmptyTopic: there is none.
        """
        self._require(caller, Operation.READ, topic)
        partition = self._pulsar_topics.one_partition(topic, "Examine messages")
        log = partition.log
        first, last = await log.entry_at(log.log_start), await log.entry_before(log.high_watermark)
        if first is None or last is None:
            raise EmptyTopic("Could not examine messages due to the total message is zero")
        runs = _runs(
            [(one.ledger_id, one.entry_count) for one in log.ledgers],
            (first.ledger_id, first.entry_id),
            (last.ledger_id, last.entry_id),
        )
        wanted = _nth(runs, number if from_start else sum(count for *_, count in runs) + 1 - number)
        found = await log.locate(LedgerId(wanted[0]), EntryId(wanted[1]))
        return None if found is None else await self._formed(partition, found)

    async def bytes_from(self, caller: Caller, topic: str, position: MessagePosition) -> int:
        """The approximate number of bytes from a message id on.  Raises as `last`."""
        self._require(caller, Operation.DESCRIBE, topic)
        partition = self._pulsar_topics.partition(topic)
        return backlog_bytes(partition.log, await offset_of(partition, position))

    async def _formed(self, partition: Partition, entry: Entry) -> Formed | None:
        formed = self._forms(partition, [entry])
        (one,) = await formed if isinstance(formed, Awaitable) else formed
        return one if one.payload is not None else None

    def _to_read(self, caller: Caller, topic: str) -> Partition:
        self._require(caller, Operation.READ, topic)
        return self._pulsar_topics.partition(topic)

    def _require(self, caller: Caller, operation: Operation, topic: str) -> None:
        self._access.require(caller, operation, topic_resource(parse_partition(topic)[0].full))


def _runs(
    ledgers: Sequence[tuple[int, int]], first: tuple[int, int], last: tuple[int, int]
) -> list[tuple[int, int, int]]:
    """The entries from `first` to `last`, as (ledger id, first entry id, count), of ledgers and their counts."""
    runs = []
    for ledger_id, count in ledgers:
        if first[0] <= ledger_id <= last[0]:
            begin = first[1] if ledger_id == first[0] else 0
            end = last[1] + 1 if ledger_id == last[0] else count
            if begin < end:
                runs.append((ledger_id, begin, end - begin))
    return runs


def _nth(runs: Sequence[tuple[int, int, int]], number: int) -> tuple[int, int]:
    """The position of the `number`-th entry, from 1, or of the outermost one."""
    left = max(number, 1) - 1
    for ledger_id, begin, count in runs:
        if left < count:
            return ledger_id, begin + left
        left -= count
    ledger_id, begin, count = runs[-1]
    return ledger_id, begin + count - 1
