"""Linked topics: copies of another cluster's topics, which are read-only until they are cut loose.

A program that reads the other cluster (`magnetar clone`) declares a link for each topic, and then appends what it has
read.  It needs no memory of its own: `declare` says where each partition ends, and what is sent twice is stored once.
It also sends the positions of the other cluster's groups, so that their consumers can move over without reading a
record twice or missing one.

Records of a Kafka cluster keep their offsets (`broker/log/linked.py`).  Entries of a Pulsar cluster keep their bytes;
their positions there are noted in the log, which finds what a position means here (`broker/log/linked_entries.py`).

To declare a link takes the right to create its topic.  To declare it again also takes the rights to what the
declaration reads and changes of the topic.  Otherwise a caller that may create topics could delete the records of a
copy by its settings.  To append, and to report, takes the right to write to it; and to list all links, the right to
describe the cluster.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, MetadataLost, StorageError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.errors import InvalidPartitions, OffsetsDiffer, TopicExists
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import CommitRequest, OffsetToCommit
from magnetar.broker.groups.offsets import GroupOffsets
from magnetar.broker.jobs.errors import LinkNotFound
from magnetar.broker.jobs.links import Links
from magnetar.broker.jobs.model import Link, LinkReport
from magnetar.broker.log import linked_entries
from magnetar.broker.policy.errors import InvalidConfig, InvalidConfigRequest
from magnetar.broker.schemas.model import IncompatibleSchema, Schema
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.model import (
    CLUSTER,
    Caller,
    Operation,
    group_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.broker.usecases.linked_copies import (
    CopiedPartition,
    PartitionCopy,
    SubscriptionPosition,
    copied,
    offsets_of,
)
from magnetar.broker.usecases.schemas import noting_new_schema
from magnetar.broker.usecases.topic_access import TopicAccess

_PULSAR: Final = "pulsar"  # what sources begin with whose entries are copied


class Declared(NamedTuple):
    """The partitions of a linked topic, the settings that it cannot have here, each with the reason, and how many
    versions of its schema there are.
    """

    partitions: Sequence[CopiedPartition]
    left_out: Mapping[str, str]
    schema_count: int


class GroupPosition(NamedTuple):
    """The offset that a group of the other cluster has committed for a partition."""

    group: str
    partition: int
    offset: int
    metadata: str


class LinkCases:
    """See the module's text.  Names are those of Kafka's clients."""

    def __init__(
        self,
        topic_access: TopicAccess,
        clock: Clock,
        links: Links,
        offsets: GroupOffsets,
        schemas: SchemaRegistry,
        subscriptions: SubscriptionAdmin,
    ) -> None:
        self._topic_access = topic_access
        self._access = topic_access.access
        self._topics = topic_access.topics
        self._kafka_topics = topic_access.kafka_topics
        self._clock = clock
        self._links = links
        self._offsets = offsets
        self._schemas = schemas
        self._subscriptions = subscriptions
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
        configs: Mapping[str, str] | None,
        *,
        is_partitioned: bool = True,
    ) -> Declared:
        """Create the topic with its link.  If it exists and is linked to the same `origin`, give it the partitions and
        the settings that the other topic has now (None: settings are not copied).  If not `is_partitioned`, it is one
        of Pulsar's without partitions.

        If the topic exists, the caller needs the rights to what this does to it and reveals of it.  These are to
        describe the topic, to alter it for more partitions, and to alter its settings where they differ.

        Raises:
            InvalidTopicName, TopicNotAuthorized, InvalidPartitions, InvalidConfig, TooManyTopics, MetadataError
            TopicExists: it is no copy of that topic.
            IncompatibleSchema: a topic of Pulsar's cannot have the schemas of its source, as the name has others.
            OffsetsDiffer: the log of a partition does not say any more where the copy ends.
            StorageError: the log of a partition cannot be served.
        """
        if not is_partitioned and partition_count != 1:
            raise InvalidPartitions("a topic that is not partitioned counts as one partition")
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
            usable, left_out = self._usable(configs or {})
            topic = self._topics.find(name)
            is_of_entries = source.startswith(_PULSAR)
            if topic is None:
                if is_of_entries and self._schemas.version_count(name):
                    raise IncompatibleSchema(
                        f"the name {name} has schemas already, so those of the source cannot have their numbers:"
                        " delete them"
                    )
                topic = self._topics.plan(
                    NewTopic(name, partition_count, configs=usable, is_partitioned=is_partitioned)
                )
                await self._create(topic, Link(topic.topic_id.hex(), name.full, source, origin, self._now_ms))
            elif not await self._follow(
                caller, topic, origin, partition_count, None if configs is None else usable
            ):
                recording.is_none()
            partitions = [topic.partition(index) for index in range(topic.partition_count)]
            return Declared(
                [
                    copied(one, await linked_entries.last_position(one.log) if is_of_entries else None)
                    for one in partitions
                ],
                left_out,
                self._schemas.version_count(name),
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

    async def set_subscriptions(
        self, caller: Caller, kafka_name: str, wanted: Sequence[SubscriptionPosition]
    ) -> Sequence[str | None]:
        """Give subscriptions what those of the other cluster have acknowledged; returns for each the reason why it was
        left as it is, or None.

        One that is in use here keeps its own position, and none is moved back.  What the copy does not have yet is not
        acknowledged.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, LinkNotFound, OffsetsDiffer, StorageError
        """
        topic = self._topic_access.get(caller, Operation.READ, kafka_name)
        self._links.require(topic)
        found: list[str | None] = []
        known: dict[int, dict[int, Any]] = {}
        for one in wanted:
            resource = subscription_resource(topic.name.full, one.subscription)
            try:
                self._access.require(caller, Operation.READ, resource)
                partition = topic.partition(one.partition)
                read = known.setdefault(one.partition, {})
                offset, ranges = await offsets_of(partition.log, one, read)
                self._links.require(topic)
                is_new = not self._subscriptions.is_there(partition, one.subscription)
                if await self._subscriptions.copy(
                    partition, one.subscription, offset, ranges, one.properties
                ):
                    change = Change.SUBSCRIPTION_CREATE if is_new else Change.SUBSCRIPTION_SKIP
                    self._access.note_often(caller, change, resource)
            except (StorageError, OffsetsDiffer, LinkNotFound):
                raise
            except BrokerError as refusal:
                found.append(refusal.code)
                continue
            found.append(None)
        return found

    async def add_schemas(
        self, caller: Caller, kafka_name: str, first: int, schemas: Sequence[Schema | None]
    ) -> int:
        """Append versions of the topic's schema, so that messages name the same ones here and there; see
        `SchemaRegistry.copy`.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, LinkNotFound, InvalidSchema, IncompatibleSchema,
            MetadataError
        """
        topic = self._topic_access.get(caller, Operation.WRITE, kafka_name)
        self._links.require(topic)
        async with noting_new_schema(self._access, self._schemas, caller, topic.name):
            return await self._schemas.copy(topic.name, first, schemas)

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
        except MetadataLost:
            raise  # the topic may be stored all the same; if it is not, the next start deletes the link
        except BrokerError:
            await self._links.remove(link, topic)
            raise

    async def _follow(
        self,
        caller: Caller,
        topic: Topic,
        origin: str,
        partition_count: int,
        configs: Mapping[str, str] | None,
    ) -> bool:
        """Give a linked topic what the other one has; returns whether that changes something."""
        link = self._links.find(topic)
        if link is None:
            raise TopicExists(
                f"the topic {topic.name} exists and is not linked: delete it, or leave it out of what is copied"
            )
        if link.origin != origin:
            raise TopicExists(
                f"the topic {topic.name} is a copy of another topic: delete it, or cut it loose"
            )
        self._access.require(caller, Operation.DESCRIBE, topic.resource)
        async with self._topics.changing(topic):
            grows = partition_count > topic.partition_count
            differs = configs is not None and configs != topic.overrides
            if grows:
                self._access.require(caller, Operation.ALTER, topic.resource)
            if differs:
                self._access.require(caller, Operation.ALTER_CONFIGS, topic.resource)
            if grows:
                await self._topics.add_partitions(topic, self._topics.plan_partitions(topic, partition_count))
            if configs is not None and differs:
                await self._topics.set_config(topic, configs)
        return grows or differs

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
