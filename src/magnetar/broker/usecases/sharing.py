"""Share consumers: they fetch from topics, and acknowledge, as consumers of the subscription with the group's name.

A consumer whose client has lost the right leaves its partition at once, so that others get the records that it holds.
This module reads what a fetch returns, in the form of Kafka's protocol.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple
from weakref import ref

from magnetar.broker.interop.interop import Interop
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    Caller,
    Operation,
    Resource,
    group_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.broker.subscriptions.dispatch.model import Unit
from magnetar.broker.subscriptions.model import Acknowledged, Acquired, ShareRules
from magnetar.broker.subscriptions.share.consumer import ShareConsumer, acquired_ranges
from magnetar.broker.subscriptions.share.errors import InvalidShareSessionEpoch
from magnetar.broker.subscriptions.share.sessions import (
    INITIAL_EPOCH,
    Key,
    ShareSession,
    ShareSessions,
)
from magnetar.broker.usecases.handles import PartitionHandle
from magnetar.broker.usecases.standing import Standing
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.ledger.entry import Entry


class SharedRecords(NamedTuple):
    """Whole batches, and which of their records the consumer has got."""

    batches: list[memoryview]
    size: int
    acquired: list[Acquired]

    @property
    def record_count(self) -> int:
        return sum(one.stop - one.start for one in self.acquired)


class SharedPartition:
    """The handle of a partition from which a share consumer fetches."""

    __slots__ = ("_consumer", "_interop", "_partition", "key")

    def __init__(self, key: Key, partition: Partition, consumer: ShareConsumer, interop: Interop) -> None:
        self.key = key
        self._partition = partition
        self._consumer = consumer
        self._interop = interop

    @property
    def batch_bytes_max(self) -> int:
        """The largest size of an entry."""
        return self._partition.batch_bytes_max

    @property
    def has_some(self) -> bool:
        """Whether records have come that are not read yet."""
        return bool(self._consumer.fresh)

    def ask(self, records_max: int) -> None:
        """A fetch waits for this many records; the batch that completes them comes whole."""
        self._consumer.ask(records_max)

    def rest(self) -> None:
        """No fetch waits."""
        self._consumer.rest()

    def give_back(self) -> None:
        """The fetch does not send what has come: it goes back to all consumers."""
        self._consumer.give_back_unsent(self._consumer.take())

    async def read(
        self, bytes_max: int, records_max: int, batch_max: int, *, is_strict: bool, may_exceed: bool
    ) -> SharedRecords:
        """The records that have come, up to these limits; the rest goes back.

        The first batch may be larger than `bytes_max` if it `may_exceed`.  The batch that completes `records_max`
        comes whole, unless `is_strict`.  `batch_max` is how many records one range has, if ranges can be cut.

        Raises:
            StorageError, EntryCorrupt: everything goes back.
        """
        consumer = self._consumer
        waiting = deque(consumer.take())
        sent: list[tuple[Unit, int]] = []
        batches: list[memoryview] = []
        size = count = 0
        try:
            while waiting and count < records_max and (size < bytes_max or (may_exceed and not sent)):
                before = len(waiting), len(sent)
                is_full = False
                for entry in await self._entries(waiting, max(bytes_max - size, 1)):
                    self._drop_gone(waiting, entry.base_offset)
                    if not waiting or waiting[0].base_offset != entry.base_offset:
                        continue
                    length = len(entry.payload)
                    is_first = may_exceed and not sent
                    if count >= records_max or (size + length > bytes_max and not is_first):
                        is_full = True
                        break
                    batches.append(entry.payload)
                    size += length
                    while waiting and waiting[0].base_offset == entry.base_offset:
                        left = records_max - count
                        if left <= 0:
                            break
                        unit = waiting.popleft()
                        if is_strict and left < unit.message_count:
                            waiting.extendleft(consumer.cut_behind(unit, left))
                        sent.append((unit, length))
                        count += unit.message_count
                        length = 0
                if is_full:
                    break
                if (len(waiting), len(sent)) == before:
                    consumer.gone([waiting.popleft()])  # retention has taken it, or compaction
        except BaseException:
            consumer.give_back_unsent([unit for unit, _ in sent])
            raise
        finally:
            consumer.give_back_unsent(waiting)
        mine = [unit for unit, _ in sent if consumer.holds(unit)]
        if not mine:  # their time was over meanwhile
            return SharedRecords([], 0, [])
        for unit, length in sent:
            consumer.sent(unit, length)
        return SharedRecords(batches, size, acquired_ranges(mine, batch_max))

    def _drop_gone(self, waiting: "deque[Unit]", base_offset: int) -> None:
        while waiting and waiting[0].base_offset < base_offset:
            self._consumer.gone([waiting.popleft()])

    async def _entries(self, waiting: Sequence[Unit], bytes_max: int) -> list[Entry]:
        """The entries of the first units that are next to each other, or the first of these entries."""
        base = end = waiting[0].base_offset
        for unit in waiting:
            if unit.base_offset > end:
                break
            end = unit.end_offset
        log = self._partition.log
        entries = log.read_cached(base, bytes_max, end)
        if entries is None:
            entries = [one for one in await log.read(base, bytes_max) if one.last_offset < end]
        if not entries:
            return []
        formed = self._interop.kafka_form(self._partition, entries)
        return await self._interop.kafka_form_later(self._partition, entries) if formed is None else formed


class OpenedShare:
    """The handle of a share consumer's session, while one of its requests is at work."""

    __slots__ = ("_caller", "_cases", "_session")

    def __init__(self, cases: "ShareCases", caller: Caller, session: ShareSession) -> None:
        self._cases = cases
        self._caller = caller
        self._session = session

    @property
    def rules(self) -> ShareRules:
        return self._cases._sessions.rules(self._session.group_id)

    @property
    def wanted(self) -> list[Key]:
        """The partitions of the fetch, beginning with the one whose turn it is."""
        return self._session.wanted

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended: then no answer can have what has come."""
        return self._session.is_closed

    def partition(self, key: Key) -> PartitionHandle:
        """A partition of a topic that the caller may read.

        Raises:
            TopicNotAuthorized, UnknownTopicId, UnknownTopic, StorageError
        """
        return self._cases._partition(self._caller, self._session.group_id, key)

    def is_connected(self, key: Key) -> bool:
        """Whether the session has a consumer at a partition."""
        place = self._session.places.get(key)
        return place is not None and place.is_connected

    async def connect(self, key: Key, address: str) -> SharedPartition | None:
        """The consumer of the session at a partition, whose subscription is created if it does not exist; None if the
        session has ended.

        Raises:
            TopicNotAuthorized, UnknownTopicId, UnknownTopic, ConsumerBusy, SubscriptionNotAllowed, SubscriptionClosed,
            InvalidShareRequest, MetadataError, StorageError, EntryCorrupt
        """
        cases, group_id = self._cases, self._session.group_id
        changes = cases._standing.changes
        partition = cases._partition(self._caller, group_id, key)
        resource = subscription_resource(partition.topic.name.full, group_id)
        noting = partial(
            cases._access.record, self._caller, Change.SUBSCRIPTION_CREATE, resource, automatic=True
        )
        consumer = await cases._sessions.connect(self._session, key, partition, address, noting)
        if consumer is None:
            return None
        cases._hold(self._caller, group_id, partition, consumer, changes)
        return SharedPartition(key, partition, consumer, cases._interop)

    async def acknowledge(self, key: Key, said: Sequence[Acknowledged]) -> None:
        """Acknowledge records; returns when that is durable.

        Raises:
            TopicNotAuthorized, UnknownTopicId, UnknownTopic, StorageError
            InvalidRecordState: nothing has changed.
            MetadataError: it holds, but is not stored yet.
        """
        self._cases._partition(self._caller, self._session.group_id, key)
        await self._cases._sessions.acknowledge(self._session, key, said)

    def served(self, key: Key) -> None:
        """The partition has had its turn."""
        self._session.rotate(key)

    def something(self) -> Awaitable[None]:
        """Resolves when something has come for the session, or the session has ended."""
        return self._session.something()

    def wake(self) -> None:
        """Let those that wait for `something` continue."""
        self._session.arrived()

    def end(self) -> None:
        """The session ends: the records that the consumer holds go back."""
        self._cases._sessions.end(self._session)


class ShareCases:
    """See the module's text."""

    def __init__(
        self,
        access: AccessControl,
        topic_access: TopicAccess,
        interop: Interop,
        sessions: ShareSessions,
        standing: Standing,
    ) -> None:
        self._access = access
        self._topic_access = topic_access
        self._interop = interop
        self._sessions = sessions
        self._standing = standing
        self.connection_lost: Callable[[int], None] = sessions.connection_lost

    def fetching(
        self,
        caller: Caller,
        group_id: str,
        member_id: str,
        epoch: int,
        connection_id: int,
        wanted: Iterable[Key],
        forgotten: Iterable[Key],
    ) -> OpenedShare:
        """The session of a fetch; a fetch with epoch 0 begins a new one.

        Raises:
            GroupNotAuthorized, ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        owner = caller.principal
        if epoch == INITIAL_EPOCH:
            session = self._sessions.begin(group_id, member_id, owner, connection_id, wanted)
        else:
            session = self._sessions.go_on(group_id, member_id, owner, epoch, wanted, forgotten)
        return OpenedShare(self, caller, session)

    def acknowledging(self, caller: Caller, group_id: str, member_id: str, epoch: int) -> OpenedShare:
        """The session of an acknowledgement.

        Raises:
            GroupNotAuthorized, ShareSessionNotFound, InvalidShareSessionEpoch
        """
        self._access.require(caller, Operation.READ, group_resource(group_id))
        if epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpoch("A session begins with a fetch.")
        return OpenedShare(self, caller, self._sessions.go_on(group_id, member_id, caller.principal, epoch))

    def _partition(self, caller: Caller, group_id: str, key: Key) -> Partition:
        topic_id, index = key
        topic = self._topic_access.get_by_id(caller, Operation.READ, topic_id)
        # It may be kept for others, where the topic is of another namespace.
        self._access.require_unnamed(caller, Operation.READ, subscription_resource(topic.name.full, group_id))
        return topic.partition(index)

    def _hold(
        self, caller: Caller, group_id: str, partition: Partition, consumer: ShareConsumer, changes: int
    ) -> None:
        """Send the consumer away once its client has lost a right.  `changes` is how often rights had changed when
        they were asked for.

        Raises:
            GroupNotAuthorized, TopicNotAuthorized: that was so meanwhile.
        """
        if not self._standing.has_rules:
            return
        topic = partition.topic.name.full
        needed = group_resource(group_id), topic_resource(topic), subscription_resource(topic, group_id)
        is_permitted = partial(_permits_all, self._access, caller, needed)
        if self._standing.changes != changes and not is_permitted():
            self._sessions.send_away(consumer)
            for one in needed:
                self._access.require_unnamed(caller, Operation.READ, one)
        # What is called knows the consumer only as long as the session does.
        self._standing.add(consumer, is_permitted, partial(_send_away, self._sessions, ref(consumer)))


def _permits_all(access: AccessControl, caller: Caller, needed: Iterable[Resource]) -> bool:
    return all(access.permits(caller, Operation.READ, one) for one in needed)


def _send_away(sessions: ShareSessions, consumer: "ref[ShareConsumer]") -> None:
    found = consumer()
    if found is not None:
        sessions.send_away(found)
