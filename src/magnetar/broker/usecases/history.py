"""What topics have stored, for readers that take most of it from files: where a range is stored, and the tail.

Topics have the names that Kafka's clients use.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from magnetar.base.errors import BrokerError, TooManyLeases, kept
from magnetar.base.lane import Lane
from magnetar.base.names import TopicName
from magnetar.broker.history.model import Located, Range
from magnetar.broker.history.segments import AT_ONCE, SegmentCatalogue
from magnetar.broker.history.stored_records import StoredRecords
from magnetar.broker.log.partition import Partition
from magnetar.broker.schemas.model import SchemaVersion
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import Caller, Operation, Principal, Resource, topic_resource
from magnetar.broker.topics.kafka import KafkaTopics
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.broker.usecases.standing import Standing
from magnetar.storage.store import Buffer

# What Kafka, Pulsar and our own writers in Spark keep for themselves, where something has made them here.
_INTERNAL: Final = frozenset(
    (
        "__consumer_offsets",
        "__transaction_state",
        "__change_events",
        "__transaction_buffer_snapshot",
        "__spark_sink",
    )
)

_LEASES_OF_ONE_MAX: Final = 250  # where there are rules, and so principals that are not the same


class ReadableTopic(NamedTuple):
    """A topic with something to read."""

    name: TopicName
    partition_count: int
    is_partitioned: bool


class PartitionOffsets(NamedTuple):
    """Where a partition begins and ends; `at_time` is None if the caller gave no time, or if no record is that new."""

    topic: TopicName
    partition: int
    earliest: int
    high_watermark: int
    last_stable: int
    at_time: int | None


class RecordReader:
    """One partition's stored records, for a caller that has the right to read them."""

    def __init__(self, partition: Partition, records: StoredRecords, check_right: Callable[[], None]) -> None:
        self._partition = partition
        self._records = records
        self._check_right = check_right

    @property
    def earliest(self) -> int:
        return self._partition.log.log_start

    @property
    def high_watermark(self) -> int:
        return self._partition.log.high_watermark

    @property
    def last_stable(self) -> int:
        return self._partition.last_stable_offset

    @property
    def is_crowded(self) -> bool:
        """Whether the largest number of readers already waits."""
        return self._records.is_crowded

    def check(self, offset: int) -> None:
        """Check that there is or can be something to read at `offset`.  Raises UnknownTopic, OffsetOutOfRange."""
        self._records.check(self._partition, offset)

    async def wait(self, offset: int, wait_s: float) -> None:
        """Return when there is something to read at `offset`, or after `wait_s`.  Cancelling it is harmless.

        Raises:
            TopicNotAuthorized: the right was taken meanwhile.
        """
        await self._records.wait(self._partition, offset, wait_s)
        self._check_right()

    async def read(
        self, offset: int, end_offset: int, bytes_max: int, *, as_kafka: bool = False
    ) -> list[Buffer]:
        """As `StoredRecords.read`.

        Raises:
            UnknownTopic, OffsetOutOfRange, StorageError
        """
        return await self._records.read(self._partition, offset, end_offset, bytes_max, as_kafka=as_kafka)


class _Lease:
    """Who took a lease, and with which rights: to read these topics, by these callers."""

    def __init__(self, owner: Principal) -> None:
        self.owner = owner
        self.rights: set[tuple[Caller, Resource]] = set()


class HistoryCases:
    """See the module's text.

    One principal holds a quarter of the leases that there may be, at most: others need some, too.

    A lease ends when its caller loses a right with which it was taken.  At its start the process does not know the
    rights of the leases that it finds, so these end when any right changes.
    """

    def __init__(
        self,
        access: AccessControl,
        topics: TopicRegistry,
        kafka_topics: KafkaTopics,
        segments: SegmentCatalogue,
        records: StoredRecords,
        schemas: SchemaRegistry,
        standing: Standing,
    ) -> None:
        self._standing = standing
        self._leases: dict[str, _Lease] = {}
        self._found_leases = segments.lease_ids()
        standing.hear(self._end_found_leases)
        self._schemas = schemas
        self._access = access
        self._topics = topics
        self._kafka_topics = kafka_topics
        self._segments = segments
        self._records = records
        self._lane = Lane()

    def topics(self, caller: Caller) -> Iterable[ReadableTopic | None]:
        """The topics with something to read that the caller may describe.  For each of the others it gives None, so
        that a loop over very many topics can give the event loop its turns.
        """
        for topic in self._topics:
            name = topic.name
            is_shown = (
                name.persistent
                and name.local not in _INTERNAL
                and self._access.permits(caller, Operation.DESCRIBE, topic.resource)
            )
            yield ReadableTopic(name, topic.partition_count, topic.is_partitioned) if is_shown else None

    def schema(self, caller: Caller, topic: str, version: int | None = None) -> SchemaVersion:
        """One version of a topic's schema, or the newest one.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, SchemaNotFound
        """
        name = self._kafka_topics.name(topic)
        self._access.require(caller, Operation.DESCRIBE, topic_resource(name.full))
        return self._schemas.get(self._kafka_topics.get(topic).name, version)

    async def offsets(
        self, caller: Caller, topic: str, index: int, timestamp_ms: int | None = None
    ) -> PartitionOffsets:
        """Where a partition begins and ends, and its first offset at or after a time.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, NonPersistent, StorageError
        """
        name = self._kafka_topics.name(topic)
        self._access.require(caller, Operation.DESCRIBE, topic_resource(name.full))
        partition = self._segments.partition(topic, index)
        at_time = None
        if timestamp_ms is not None:
            at_time = await self._segments.offset_at(partition, timestamp_ms)
        log = partition.log
        return PartitionOffsets(
            partition.topic.name,
            partition.index,
            log.log_start,
            log.high_watermark,
            partition.last_stable_offset,
            at_time,
        )

    async def locate(
        self, caller: Caller, wanted: Sequence[Range], lease_id: str | None = None, lease_s: int | None = None
    ) -> tuple[str | None, Sequence[Located | BrokerError]]:
        """Which files hold each range, or why the caller does not get that; and the lease on all files of the answer.

        With `lease_id`, that lease is renewed and extended; otherwise `lease_s` gives a new one, if there are any
        files to keep.

        Raises:
            LeaseNotFound, TooManyLeases
        """
        refused: dict[int, BrokerError] = {}
        changes = self._standing.changes
        rights: set[tuple[Caller, Resource]] = set()
        for number, one in enumerate(wanted):
            if number % AT_ONCE == AT_ONCE - 1:
                await self._lane.rest()
            try:
                resource = topic_resource(self._kafka_topics.name(one.topic).full)
                self._access.require(caller, Operation.READ, resource)
                rights.add((caller, resource))
            except BrokerError as error:
                refused[number] = kept(error)
        if lease_id is None and lease_s is not None and self._standing.has_rules:
            self._check_room(caller.principal)
        allowed = [one for number, one in enumerate(wanted) if number not in refused]
        lease, located = await self._segments.locate_all(allowed, lease_id, lease_s)
        if lease is not None and self._standing.has_rules:
            self._keep_lease(lease, caller.principal, rights)
            # One was taken meanwhile.
            if self._standing.changes != changes and not all(self._permitted(rights)):
                self._end_lease_now(lease)
        found = iter(located)
        return lease, [refused.get(number) or next(found) for number in range(len(wanted))]

    def reader(self, caller: Caller, topic: str, index: int) -> RecordReader:
        """The reader of a partition's stored records.

        Raises:
            InvalidTopicName, TopicNotAuthorized, UnknownTopic, NonPersistent
        """
        name = self._kafka_topics.name(topic)
        check_right = partial(self._access.require, caller, Operation.READ, topic_resource(name.full))
        check_right()
        return RecordReader(self._segments.partition(topic, index), self._records, check_right)

    @property
    def store_id(self) -> str | None:
        """The id of the store to which paths of segments belong; None for a store without files."""
        return self._segments.store_id

    # --- leases: their ids are known only to readers that have the right to what they are on --------------------------

    def _check_room(self, owner: Principal) -> None:
        held = self._segments.lease_ids()
        own = sum(one.owner == owner for lease_id, one in self._leases.items() if lease_id in held)
        if own >= _LEASES_OF_ONE_MAX:
            raise TooManyLeases(f"{owner} holds {own} leases already: end some, or wait for one to lapse")

    def _keep_lease(self, lease_id: str, owner: Principal, rights: set[tuple[Caller, Resource]]) -> None:
        """The lease ends with the first of its rights that the caller loses."""
        lease = self._leases.get(lease_id)
        if lease is None:
            held = self._segments.lease_ids()
            for lapsed in self._leases.keys() - held:
                self._forget_lease(lapsed)
            lease = self._leases[lease_id] = _Lease(owner)
            end = partial(self._end_lease_now, lease_id)
            self._standing.add_several(lease, partial(self._permitted, lease.rights), end)
        lease.rights |= rights

    def _permitted(self, rights: set[tuple[Caller, Resource]]) -> Iterator[bool]:
        for caller, resource in list(rights):
            yield self._access.permits(caller, Operation.READ, resource)

    def _end_lease_now(self, lease_id: str) -> None:
        self._forget_lease(lease_id)
        self._segments.drop_lease(lease_id)

    def _forget_lease(self, lease_id: str) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            self._standing.drop(lease)

    def _end_found_leases(self) -> None:
        found, self._found_leases = self._found_leases, frozenset()
        for lease_id in found:
            self._segments.drop_lease(lease_id)

    async def renew_lease(self, lease_id: str, lease_s: int | None) -> None:
        """Let a lease end `lease_s` from now, or after its own length.  Raises LeaseNotFound."""
        await self._segments.leases.renew(lease_id, lease_s)

    async def end_lease(self, lease_id: str) -> None:
        """The reader no longer needs its files.  Raises LeaseNotFound."""
        await self._segments.leases.end(lease_id)
        self._forget_lease(lease_id)
