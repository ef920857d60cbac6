"""Linked topics: copies of another cluster's topics, at the same offsets, which are read-only until they are cut loose.

A program that reads the other cluster (`magnetar clone`) declares a link for each topic, and then appends what it has
read.  It needs no memory of its own: `declare` says where each partition ends, and what is sent twice is stored once
(`broker/log/linked.py`).  It also sends the positions of the other cluster's groups, so that their consumers can move
over without reading a record twice or missing one.

To declare a link takes the right to create its topic; to append, and to report, the right to write to it; and to list
all links, the right to describe the cluster.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, MetadataLost, StorageError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.errors import OffsetsDiffer, TopicExists
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.groups.offsets import GroupOffsets
from magnetar.broker.jobs.links import Links
from magnetar.broker.jobs.model import Link, LinkReport
from magnetar.broker.log import linked
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    group_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.topic_access import TopicAccess

_AT_ONCE: Final = 64  # batches in one turn of the event loop, each perhaps with one that covers a gap


class CopiedPartition(NamedTuple):
    """How far a copy of a partition is: the records from `log_start` up to `end` are durable.  `is_new`: it may still
    begin at any offset.
    """

    partition: int
    log_start: int
    end: int
    is_new: bool


class Declared(NamedTuple):
    """The partitions of a linked topic, and the settings that it cannot have here, each with the reason."""

    partitions: Sequence[CopiedPartition]
    left_out: Mapping[str, str]


class GroupPosition(NamedTuple):
    """The offset that a group of the other cluster has committed for a partition."""

    group: str
    partition: int
    offset: int
    metadata: str


class PartitionCopy:
    """The handle of a partition that its caller may append to, as long as it is linked."""

    def __init__(
        self, topic: Topic, partition: Partition, links: Links, clock: Clock, lock: asyncio.Lock
    ) -> None:
        """`lock` is the partition's.  One request at a time appends, because other work has its turn between the
        beginning of a log and its first batch, and between batches.
        """
        self._topic = topic
        self._partition = partition
        self._links = links
        self._clock = clock
        self._lock = lock

    async def append(self, batches: memoryview, *, after: int, begin: int, end: int) -> int:
        """Append record batches, which stand one after the other in `batches`, at their offsets; then let the log end
        at `end` at least, because the other log has no records before that.  A log without entries begins at `begin`.

        `after` is where the log ends, as the caller knows: the other log has no records between that and the first
        batch.  If the log ends before, it is not the one that the caller means, or has lost records.

        Returns where the log ends, once everything is durable.

        Raises:
            UnknownTopic, LinkNotFound: the topic was deleted, or cut loose.
            CorruptMessage, InvalidRecord, RecordTooLarge, UnsupportedMessageFormat, OffsetsDiffer: batches before the
                bad one are appended.
            StorageError, MetadataError: some of it may be durable.
        """
        partition, log, parts = self._partition, self._partition.log, linked.split(batches)
        async with self._lock:
            self._check()
            if begin > log.next_offset:
                await log.begin_at(begin)
            if log.next_offset < after:
                raise OffsetsDiffer(f"{log.name} ends at {log.next_offset}, and not at {after} or later")
            while next_ones := list(islice(parts, _AT_ONCE)):
                self._check()
                for batch in next_ones:
                    linked.append(partition, batch, self._clock.now_ms(), _note_nothing)
                reached = log.next_offset
                await asyncio.sleep(0)
                if log.next_offset < reached:  # their write has failed, and what comes next would leave a gap
                    raise self._lost()
            self._check()
            linked.cover(partition, end, self._clock.now_ms(), _note_nothing)
            if not await partition.durable_waits.until(log.next_offset):
                raise self._lost()
        return log.high_watermark

    def _check(self) -> None:
        """Raise UnknownTopic or LinkNotFound if the topic was deleted or cut loose while others had their turn."""
        self._topic.check_exists()
        self._links.require(self._topic)

    def _lost(self) -> StorageError:
        return StorageError(
            f"{self._topic.name} {self._partition.index}: the server could not store what was copied"
        )


class LinkCases:
    """See the module's text.  Names are those of Kafka's clients."""

    def __init__(
        self,
        access: AccessControl,
        topic_access: TopicAccess,
        clock: Clock,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        links: Links,
        offsets: GroupOffsets,
    ) -> None:
        self._access = access
        self._topic_access = topic_access
        self._clock = clock
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._links = links
        self._offsets = offsets
        self._declaring = asyncio.Lock()
        self._appending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the log's name

    # --- the program that copies -------------------------------------------------------------------------------------

    async def declare(
        self,
        caller: Caller,
        kafka_name: str,
        source: str,
        origin: str,
        partition_count: int,
        configs: Mapping[str, str],
    ) -> Declared:
        """Create the topic with its link; or, if it is linked to the same `origin`, give it the partitions and the
        settings that the other topic has now.

        Raises:
            InvalidTopicName, TopicNotAuthorized, InvalidPartitions, InvalidConfig, TooManyTopics, MetadataError
            TopicExists: it is no copy of that topic.
            StorageError: the log of a partition cannot be served.
        """
        name = self._kafka_topics.name(kafka_name)
        resource = topic_resource(name.full)
        async with (
            self._access.change(
                caller,
                Operation.CREATE,
                resource,
                Change.LINK_DECLARE,
                source=source,
                partitions=partition_count,
            ) as recording,
            self._declaring,
        ):
            if self._kafka_topics.internal.find(name) is not None or not name.persistent:
                raise InvalidTopicName(f"{name} cannot be linked: it is no topic for clients' records")
            usable, left_out = self._usable(configs)
            topic = self._topics.find(name)
            if topic is None:
                topic = self._topics.plan(NewTopic(name, partition_count, configs=usable))
                await self._create(topic, Link(topic.topic_id.hex(), name.full, source, origin, self._now_ms))
            elif not await self._follow(topic, origin, partition_count, usable):
                recording.is_none()
            return Declared(
                [_copied(topic.partition(index)) for index in range(topic.partition_count)], left_out
            )

    def copy(self, caller: Caller, kafka_name: str, index: int) -> PartitionCopy:
        """A partition of a linked topic, for a caller that may append to it.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, LinkNotFound
            StorageError: its log cannot be served.
        """
        topic = self._topic_access.get(caller, Operation.WRITE, kafka_name)
        self._links.require(topic)
        partition = topic.partition(index)
        lock = self._appending.get(partition.log.name)
        if lock is None:
            lock = self._appending[partition.log.name] = asyncio.Lock()
        return PartitionCopy(topic, partition, self._links, self._clock, lock)

    async def set_positions(
        self, caller: Caller, kafka_name: str, positions: Sequence[GroupPosition]
    ) -> Sequence[str | None]:
        """Give groups the positions that they have in the other cluster; returns for each the code of the reason why
        the group keeps its own, or None.

        A group with members here keeps its own, and no group moves back.  A position before the copy becomes its
        start, and one behind it becomes its end, because all that the group still has to read comes behind that.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, LinkNotFound, StorageError
        """
        topic = self._topic_access.get(caller, Operation.READ, kafka_name)
        self._links.require(topic)
        by_group: dict[str, list[int]] = {}
        for number, one in enumerate(positions):
            by_group.setdefault(one.group, []).append(number)
        found: dict[int, str | None] = {}
        for group, numbers in by_group.items():
            resource = subscription_resource(topic.name.full, group)
            try:
                self._access.require(caller, Operation.READ, group_resource(group))
                self._access.require(caller, Operation.READ, resource)
            except BrokerError as refusal:
                found.update(dict.fromkeys(numbers, refusal.code))
                continue
            wanted = {number: self._clamped(topic, positions[number]) for number in numbers}
            ahead = {number: one for number, one in wanted.items() if self._is_ahead(group, one)}
            found.update(dict.fromkeys(numbers))
            if ahead:
                errors = await self._offsets.commit(CommitRequest(group, list(ahead.values())))
                for number, error in zip(ahead, errors, strict=True):
                    found[number] = None if error is GroupError.NONE else error.name
                if GroupError.NONE in errors:
                    self._access.note_often(caller, Change.GROUP_SET_OFFSETS, resource)
        return [found[number] for number in range(len(positions))]

    def report(self, caller: Caller, kafka_name: str, lag: int, error: str) -> None:
        """Note how far the program is, for `all`: `lag` records behind, and what went wrong last (empty: nothing).

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, LinkNotFound
        """
        topic = self._topic_access.get(caller, Operation.WRITE, kafka_name)
        self._links.reported(self._links.require(topic), LinkReport(lag, error, self._now_ms))

    # --- users -------------------------------------------------------------------------------------------------------

    def all(self, caller: Caller) -> Sequence[tuple[Link, LinkReport | None]]:
        """All links, and the last report of each, by topic.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return [(link, self._links.report(link)) for link in self._links.all()]

    async def cut(self, caller: Caller, kafka_name: str) -> None:
        """Cut a topic loose: from now on it is a topic as any other, and its link no longer writes to it.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, LinkNotFound, MetadataError
        """
        topic = self._topic_access.get(caller, Operation.ALTER, kafka_name)
        async with self._access.record(caller, Change.LINK_CUT, topic.resource):
            await self._links.remove(self._links.require(topic), topic)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self._clock.now_ms()

    def _usable(self, configs: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """The settings that a topic can have here, in canonical text, and the reasons why it cannot have the others."""
        usable: dict[str, str] = {}
        left_out: dict[str, str] = {}
        for name, text in configs.items():
            try:
                usable |= self._topics.defaults.canonical({name: text})
            except (InvalidConfig, InvalidConfigRequest) as error:
                left_out[name] = str(error)
        return usable, left_out

    async def _create(self, topic: Topic, link: Link) -> None:
        await self._links.add(link)
        try:
            await self._topics.create([topic])
        except (
            MetadataLost
        ):  # the topic may be stored all the same; if it is not, the next start deletes the link
            raise
        except BrokerError:
            await self._links.remove(link, topic)
            raise

    async def _follow(
        self, topic: Topic, origin: str, partition_count: int, configs: Mapping[str, str]
    ) -> bool:
        """Give a linked topic what the other one has; returns whether that changes something."""
        link = self._links.find(topic)
        if link is None:
            raise TopicExists(
                f"the topic {topic.name} exists and is not linked: delete it, or leave it out of what is copied"
            )
        if link.origin != origin:
            raise TopicExists(
                f"the topic {topic.name} is a copy of another topic, of {link.source}: delete it, or cut it loose"
            )
        has_changed = False
        async with self._topics.changing(topic):
            if partition_count > topic.partition_count:
                await self._topics.add_partitions(topic, self._topics.plan_partitions(topic, partition_count))
                has_changed = True
            if configs != topic.overrides:
                await self._topics.set_config(topic, configs)
                has_changed = True
        return has_changed

    def _clamped(self, topic: Topic, wanted: GroupPosition) -> OffsetToCommit:
        offset = wanted.offset
        if 0 <= wanted.partition < topic.partition_count:  # otherwise the group refuses it
            log = topic.partition(wanted.partition).log
            offset = min(max(offset, log.log_start), log.high_watermark)
        return OffsetToCommit(topic.name.full, wanted.partition, offset, wanted.metadata)

    def _is_ahead(self, group: str, wanted: OffsetToCommit) -> bool:
        """Whether the group has not got that far here."""
        _, cursors = self._offsets.fetch(group, [(wanted.topic, wanted.partition)])
        return all(cursor is None or cursor.committed_offset < wanted.offset for cursor in cursors)


def _note_nothing(error: Exception | None) -> None:
    """For single entries: `append` waits for all of them."""


def _copied(partition: Partition) -> CopiedPartition:
    log = partition.log
    return CopiedPartition(partition.index, log.log_start, log.high_watermark, log.next_offset == 0)
