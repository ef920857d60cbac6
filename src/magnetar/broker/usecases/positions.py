"""Where one subscription is in the partitions of many topics: show, set and drop, in one step; and how far one of a
replicator may read on.

For the caller's rights it is like a Kafka group: a subscription without a topic, and the topics beside it.
`subscriptions.py` is about a subscription of one topic.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from magnetar.base.errors import BrokerError, kept
from magnetar.base.lane import Lane
from magnetar.base.names import TopicName
from magnetar.broker.errors import OffsetOutOfRange
from magnetar.broker.history.replicator_rates import ReplicatorRates
from magnetar.broker.history.segments import SegmentCatalogue
from magnetar.broker.jobs.read_bytes import ReadBytes
from magnetar.broker.log.backlog import bytes_between
from magnetar.broker.log.partition import Partition
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.model import (
    Caller,
    Operation,
    group_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.subscriptions.errors import SubscriptionNotFound
from magnetar.broker.usecases.known_groups import KnownGroups
from magnetar.broker.usecases.topic_access import TopicAccess
from magnetar.ledger.cursor_store import CursorKey, CursorStore

LOOKED_AT_BYTES_MAX: Final = 128 << 20  # in all partitions of one request, for which a client waits
_LOOKED_AT_BYTES_MIN: Final = 1 << 20  # in each
_AT_ONCE: Final = 100  # partitions, and others have a turn


class Position(NamedTuple):
    """Where a subscription is in a partition, and how many messages it has not acknowledged there."""

    topic: TopicName
    partition: int
    offset: int
    backlog: int


class WantedPosition(NamedTuple):
    """`topic` is the name that Kafka's clients use."""

    topic: str
    partition: int
    offset: int


class WantedRange(NamedTuple):
    """What a replicator would read next: the offsets from `begin` (inclusive) to `end` (exclusive).  `topic` is the
    name that Kafka's clients use.
    """

    topic: str
    partition: int
    begin: int
    end: int


class PositionCases:
    """See the module's text."""

    def __init__(
        self,
        topic_access: TopicAccess,
        cursors: CursorStore,
        segments: SegmentCatalogue,
        admin: SubscriptionAdmin,
        rates: ReplicatorRates,
        read_bytes: ReadBytes,
        known: KnownGroups,
    ) -> None:
        self._access = topic_access.access
        self._topics = topic_access.topics
        self._kafka_topics = topic_access.kafka_topics
        self._known = known
        self._cursors = cursors
        self._segments = segments
        self._admin = admin
        self._rates = rates
        self._read_bytes = read_bytes
        self._lane = Lane()

    async def read(
        self, caller: Caller, name: str, topics: Collection[str] | None = None
    ) -> Sequence[Position]:
        """Where a subscription is, as far as the caller may know: in the topics that it may describe, or in those of
        them in `topics`.

        Raises:
            GroupNotAuthorized, InvalidTopicName
            SubscriptionNotFound: it stands in none of them.
        """
        self._access.require(caller, Operation.DESCRIBE, group_resource(name))
        rows: list[Position] = []
        for number, partition in enumerate(self._standing(name, topics), 1):
            if number % _AT_ONCE == 0:
                await self._lane.rest()
            topic = partition.topic.name
            if self._is_shown(caller, name, topic.full):
                with suppress(SubscriptionNotFound):  # it was dropped meanwhile
                    offset = self._admin.cursor(partition, name).mark_delete
                    rows.append(
                        Position(topic, partition.index, offset, self._admin.backlog(partition, name))
                    )
        if not rows:
            raise SubscriptionNotFound(f"there is no subscription {name[:200]}")
        return rows

    async def hold(
        self, caller: Caller, name: str, wanted: Sequence[WantedPosition]
    ) -> Sequence[BrokerError | None]:
        """Create a subscription that holds the messages from these offsets on, or move it forward to them, all in one
        step.

        Returns for each position None, or why it is impossible.

        Raises:
            GroupNotAuthorized, SubscriptionNotAllowed, SubscriptionBusy, MetadataError: nothing is stored.
        """
        self._access.require(caller, Operation.READ, group_resource(name))
        errors: list[BrokerError | None] = [None] * len(wanted)
        allowed: list[tuple[int, Partition]] = []
        for number, one in enumerate(wanted):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await self._lane.rest()
            try:
                allowed.append((number, self._to_hold(caller, name, one)))
            except BrokerError as error:
                errors[number] = kept(error)
        found: dict[Partition, int] = {}
        # In one step with `hold`: no other caller may make subscriptions in between.
        for number, partition in allowed:
            try:
                partition.topic.check_exists()
                self._admin.check_count(partition, name)
                found[partition] = wanted[number].offset
            except BrokerError as error:
                errors[number] = kept(error)
        sizes = {partition: self._between(name, partition, offset) for partition, offset in found.items()}
        await self._admin.hold(name, found)
        for partition, size_bytes in sizes.items():
            self._read_bytes.add(name, partition.topic.name.full, size_bytes)
        return errors

    async def admit(
        self, caller: Caller, name: str, wanted: Sequence[WantedRange]
    ) -> Sequence[int | BrokerError]:
        """How far the replicator with this subscription may read now (`ReplicatorRates.admit`).

        Returns for each range the end of what it may read, or why it may not.

        Raises:
            GroupNotAuthorized
        """
        self._access.require(caller, Operation.READ, group_resource(name))
        bytes_max = max(LOOKED_AT_BYTES_MAX // max(len(wanted), 1), _LOOKED_AT_BYTES_MIN)
        found: list[int | BrokerError] = []
        for number, one in enumerate(wanted, 1):
            if number % _AT_ONCE == 0:
                await self._lane.rest()
            try:
                partition = self._readable(caller, name, one.topic, one.partition)
                found.append(await self._rates.admit(partition, name, one.begin, one.end, bytes_max))
            except BrokerError as error:
                found.append(kept(error))
        return found

    async def drop(
        self, caller: Caller, name: str, topics: Collection[str] | None = None, *, force: bool = False
    ) -> int:
        """Drop a subscription from all topics, or from `topics`, where the caller may; returns in how many partitions
        it was.

        Raises:
            GroupNotAuthorized, InvalidTopicName, SubscriptionBusy, MetadataError
        """
        async with self._access.change(
            caller, Operation.DELETE, group_resource(name), Change.SUBSCRIPTION_DELETE, force=force
        ) as recording:
            found = [
                partition
                for partition in self._standing(name, topics)
                if self._access.permits(
                    caller, Operation.DELETE, subscription_resource(partition.topic.name.full, name)
                )
            ]
            for partition in found:
                await self._admin.delete(partition, name, force=force)
            recording.details["partitions"] = len(found)
            return len(found)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _between(self, name: str, partition: Partition, offset: int) -> int:
        """About how many bytes a subscription leaves behind that moves to `offset`; 0 if it begins there."""
        full, log = partition.topic.name.full, partition.log
        cursor = self._cursors.newest(CursorKey(name, full, partition.index))
        if cursor is None or cursor.mark_delete >= offset:
            return 0
        return bytes_between(log, cursor.mark_delete, offset)

    def _to_hold(self, caller: Caller, name: str, wanted: WantedPosition) -> Partition:
        partition = self._readable(caller, name, wanted.topic, wanted.partition)
        end = partition.log.high_watermark
        if wanted.offset > end:
            raise OffsetOutOfRange(
                f"{wanted.topic} partition {wanted.partition} ends at {end}: a subscription cannot stand at"
                f" {wanted.offset}"
            )
        return partition

    def _readable(self, caller: Caller, name: str, topic: str, index: int) -> Partition:
        full = self._kafka_topics.name(topic).full
        self._access.require(caller, Operation.READ, topic_resource(full))
        self._access.require(caller, Operation.READ, subscription_resource(full, name))
        return self._segments.partition(topic, index)

    def _is_shown(self, caller: Caller, name: str, full: str) -> bool:
        may_describe = self._access.permits(caller, Operation.DESCRIBE, topic_resource(full))
        return may_describe and self._known.is_shown_in(caller, name, full)

    def _standing(self, name: str, topics: Collection[str] | None) -> Iterator[Partition]:
        """Partitions with the subscription."""
        wanted = None if topics is None else {self._kafka_topics.name(one).full for one in topics}
        for full, partitions in sorted(self._cursors.subscription(name).items()):
            if wanted is not None and full not in wanted:
                continue
            topic = self._topics.find(TopicName.parse(full))
            if topic is None:
                continue  # it is being deleted
            for index in sorted(partitions):
                if index < topic.partition_count:
                    yield topic.partition(index)
