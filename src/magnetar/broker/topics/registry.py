"""The topics of this broker: made, found, changed and deleted, and the partitions that belong to them.

How one is stored, and what its logs are called, is in `topic.py`; what a start finds besides topics, in
`leftovers.py`.  A partition whose log names ledgers that are missing is refused.

Ten thousand topics cost one metadata scan at start: a `Partition` object is made when it is first asked for.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from magnetar.base import randomness
from magnetar.base.errors import BadVersion, MetadataError, StorageError
from magnetar.base.event import AwaitedEvent, Event
from magnetar.base.names import TopicName
from magnetar.broker.cluster.following import follow
from magnetar.broker.cluster.ownership.owner import Hold
from magnetar.broker.cluster.placement import Placement
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    NotLeader,
    TopicExists,
    UnknownTopic,
)
from magnetar.broker.log.partition import OpenLog, Partition
from magnetar.broker.log.topic import PartitionTopic
from magnetar.broker.policy.model import TopicConfig
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.broker.topics.deleted import DeletedTopics
from magnetar.broker.topics.known import KnownTopics
from magnetar.broker.topics.leftovers import Leftovers
from magnetar.broker.topics.logs import Logs, limits_of
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.namespace_limits import NamespaceLimits
from magnetar.broker.topics.observers import TopicsObservers
from magnetar.broker.topics.roots import TOPICS_ROOT
from magnetar.broker.topics.topic import Topic, name_at, topic_path
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.stored_log import StoredLog
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, Put, Versioned

_log = logging.getLogger(__name__)


class TopicRegistry(KnownTopics):
    """All topics, by full name and by id.

    Its maker gives it what it does not know itself:

    * `make_partition` makes a partition of the kind that the topic asks for;
    * `is_in_transaction` answers for producer id, epoch, full topic name, partition and transactional id;
    * `seat`, in a cluster, says which partitions this broker serves.

    Three events are for parts that are made later:

    * `made`: topics were created, or have new partitions; their maker waits until they have what they need;
    * `opened`: a partition is about to take records;
    * `terminated`: the last message of a partition is durable, and its producers have their receipts.
    """

    def __init__(
        self,
        environment: LedgerEnvironment,
        placement: Placement,
        defaults: TopicDefaults,
        namespaces: Namespaces,
        *,
        make_partition: Callable[[PartitionTopic, int, list[int], OpenLog], Partition],
        is_in_transaction: Callable[[int, int, str, int, str | None], bool],
        seat: Seat | None = None,
    ) -> None:
        # The limits also count how many topics each namespace has; observers hear of topics made, grown and deleted.
        super().__init__(NamespaceLimits(namespaces.policies_of), TopicsObservers())
        self._environment = environment
        self._placement = placement
        self.defaults = defaults
        self._namespaces = namespaces  # topics that are created bring those that are missing along
        self._make_partition = make_partition
        self._opening = self._open_partition  # one bound method for all topics
        self._is_in_transaction = is_in_transaction
        self._seat = seat
        self.made: Final[AwaitedEvent[Sequence[Topic]]] = AwaitedEvent()
        self.opened: Final[Event[Partition]] = Event()
        self.terminated: Final[Event[Partition]] = Event()
        # Done when it is there, or will not be.
        self._being_created: dict[TopicName, asyncio.Future[None]] = {}
        # Done when the name is free, or the topic could not be deleted and has it again.
        self._being_deleted: dict[TopicName, asyncio.Future[None]] = {}
        self._changing: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()  # by topic id
        self._being_written: dict[str, bytes] = {}  # records of topics, by path
        self._unfollow: Callable[[], None] | None = None
        self._logs = Logs(environment)
        self.deleted = DeletedTopics(environment)
        self._leftovers = Leftovers(environment, self.deleted)

    def config_of(self, overrides: Mapping[str, str]) -> TopicConfig:
        return self.defaults.config(overrides)

    # --- start -------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read every topic and every log's metadata; open the partitions that have a log.  See the module's text.

        In a cluster this opens nothing, and hears from then on what other brokers do to topics.
        """
        metadata = self._environment.metadata
        if self._seat is not None:
            self._unfollow = await follow(metadata, TOPICS_ROOT, self._hear)
            return
        await self._logs.load()
        for path, value in await metadata.scan(TOPICS_ROOT):
            topic = self._stored(path, value)
            self._register(topic)
            self.limits.add(topic.name, topic.partition_count)
            for index in range(topic.partition_count):
                if topic.log_name(index) in self._logs.unopened:
                    with suppress(StorageError):  # said where it was found
                        topic.partition(index)

    def _hear(self, path: str, value: Versioned | None) -> None:
        """A broker of the cluster has made, changed or deleted a topic."""
        if value is None:
            self._learn(name_at(path), None)
        elif self._being_written.get(path) != value.value:  # else this broker goes on when its commit returns
            self._learn(name_at(path), self._stored(path, value))

    def _stored(self, path: str, value: Versioned) -> Topic:
        """The topic that is stored at a path."""
        document = json.loads(value.value)
        replicas = document["replicas"]
        topic = self._topic(
            name_at(path),
            bytes.fromhex(document["id"]),
            self._placement.nodes.adopt(replicas) if self._seat is None else replicas,
            document["configs"],
            document["created_ms"],
            value.version,
            document.get("partitioned", True),
        )
        topic.is_terminated = document.get("terminated", False)
        return topic

    async def go_on_deleting(self, cursors: Mapping[str, Sequence[str]]) -> None:
        """Finish deletions that had begun, and report data of no topic (`leftovers.py`).

        `cursors` are the paths of cursors that belong to no topic, by topic id in hex.
        """
        if self._seat is None:  # what a broker of a cluster does not know may be another's
            await self._leftovers.settle(self, self._logs.unopened, cursors)

    def close(self) -> None:
        """Close all partitions, hear nothing more, and leave deletions that go on to the next start."""
        for topic in self:
            for partition in topic.open_partitions:
                partition.close()
        self.deleted.close()
        if self._unfollow is not None:
            self._unfollow()

    @property
    def problem(self) -> str | None:
        """What the operator should know: partitions that are refused, data that no topic owns."""
        refused = [log.problem for topic in self for log in topic.refused.values()]
        if not refused:
            return self._leftovers.problem
        more = f" (and {len(refused) - 1} partitions more)" if len(refused) > 1 else ""
        return f"{refused[0]}{more}"

    def _topic(
        self,
        name: TopicName,
        topic_id: bytes,
        replicas: list[list[int]],
        overrides: Mapping[str, str],
        created_ms: int,
        version: int,
        is_partitioned: bool = True,
    ) -> Topic:
        return Topic(
            name,
            topic_id,
            replicas,
            overrides,
            self.config_of(overrides),
            created_ms,
            version,
            is_partitioned,
            open_partition=self._opening,
            is_in_transaction=self._is_in_transaction,
            seat=self._seat,
        )

    def _open_partition(self, topic: Topic, index: int) -> Partition:
        if self._seat is None:
            open_log = self._logs.loaded(topic.log_name(index), topic.config)
            return self._opened(topic, index, topic.replicas[index], open_log)
        hold = self._seat.hold_of(topic.name.namespace_name, topic.pulsar_name(index))
        return self.open_owned(topic, index, hold, None)

    async def recover(self, topic: Topic, index: int) -> StoredLog | None:
        """As `recover_log`, for the log of a partition."""
        return await self._logs.recover(topic.log_name(index))

    def open_owned(self, topic: Topic, index: int, hold: Hold, stored: StoredLog | None) -> Partition:
        """A partition for the owner of its bundle, with the log that was recovered.

        Raises:
            LogLost: another broker owns it.
            StorageError: its log cannot be served.
        """
        assert self._seat is not None, topic.name
        open_log = self._logs.owned(topic.log_name(index), topic.config, hold, stored)
        return self._opened(topic, index, [self._seat.node_id], open_log)

    def _opened(self, topic: Topic, index: int, replicas: list[int], open_log: OpenLog) -> Partition:
        partition = self._make_partition(topic, index, replicas, open_log)
        log = partition.log
        if log.problem is not None:
            _log.error(log.problem)
            topic.refuse(index, log)
            raise StorageError(log.problem)
        self.opened.happened(partition)
        partition.is_terminated = topic.is_terminated
        return partition

    # --- changes -----------------------------------------------------------------------------------------------------

    def plan(self, wanted: NewTopic, planned: Counter[str] | None = None) -> Topic:
        """The topic that `create` would create, checked but not stored.

        `planned` counts, by namespace, the partitions that the same step creates; this topic's are added.

        Raises:
            TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidConfig,
            TooManyTopics
        """
        name = wanted.name
        if name in self._by_name or name in self._being_created:
            raise TopicExists(f"Topic '{name.local}' already exists.")
        if wanted.replicas is not None:
            if wanted.partition_count != -1 or wanted.replication_factor != -1:
                raise InvalidReplicaAssignment(
                    "give either a replica assignment or numbers of partitions and replicas"
                )
            replicas = self._placement.checked(wanted.replicas)
        else:
            replicas = self._placement.assigned(wanted.partition_count, wanted.replication_factor)
        if not wanted.is_partitioned and len(replicas) != 1:
            raise InvalidPartitions(f"{name} is not partitioned and has one partition, not {len(replicas)}.")
        overrides = self.defaults.canonical(wanted.configs)
        self.limits.check(name, len(replicas), planned)
        now_ms = self._environment.clock.now_ms()
        return self._topic(
            name, randomness.new_uuid().bytes, replicas, overrides, now_ms, 0, wanted.is_partitioned
        )

    def make_internal(
        self, name: TopicName, topic_id: bytes, partition_count: int, configs: Mapping[str, str]
    ) -> Topic:
        """A topic without records that is stored nowhere and found only by its id: see `internal.py`."""
        replicas = self._placement.assigned(partition_count, 1)
        now_ms = self._environment.clock.now_ms()
        topic = self._topic(name, topic_id, replicas, self.defaults.canonical(dict(configs)), now_ms, 0)
        topic.is_internal = True
        self._by_id[topic_id] = topic
        return topic

    async def create(self, topics: Sequence[Topic]) -> None:
        """Store topics from `plan`, all in one step; clients can use them when this returns.

        If a topic with the name is being deleted, this waits for the end of that.

        Raises:
            TopicExists, TooManyTopics, MetadataError: none of them is there.
        """
        while pending := [self._being_deleted[one.name] for one in topics if one.name in self._being_deleted]:
            await asyncio.wait(pending)
        for topic in topics:
            if topic.name in self._by_name or topic.name in self._being_created:
                raise TopicExists(f"Topic '{topic.name.local}' already exists.")
        self.limits.check_all(topics)
        for topic in topics:
            self.limits.add(topic.name, topic.partition_count)
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._being_created |= {topic.name: settled for topic in topics}
        try:
            await self._namespaces.ensure({topic.name.namespace_name for topic in topics})
            await self._store_new(topics)
            for topic in topics:
                self._register(topic)
            if self.observers:
                self.observers.tell([], [name for topic in topics for name in topic.pulsar_names])
            await self.made.happened(topics)
        finally:
            for topic in topics:
                del self._being_created[topic.name]
                if self._by_id.get(topic.topic_id) is not topic:  # it could not be made
                    self.limits.add(topic.name, -topic.partition_count)
            settled.set_result(None)

    async def _store_new(self, topics: Sequence[Topic]) -> None:
        puts = [Put(topic_path(t.name), t.encode(t.replicas, t.overrides), MUST_NOT_EXIST) for t in topics]
        self._being_written |= {put.path: put.value for put in puts}
        try:
            await self._environment.metadata.commit(puts)
        except BadVersion:
            for topic in topics:
                if topic.name in self._by_name:  # another broker was faster
                    raise TopicExists(f"Topic '{topic.name.local}' already exists.") from None
            raise
        finally:
            for put in puts:
                del self._being_written[put.path]

    async def settled(self, name: TopicName) -> None:
        """Wait until the topic's creation, if in progress, has ended: it can be found then, or could not be created."""
        settled = self._being_created.get(name)
        if settled is not None:
            await asyncio.wait([settled])  # a task that gives up waiting must not end it for the others

    async def ensure(self, name: TopicName) -> Topic:
        """The topic, created with the defaults if it does not exist; if another client is creating it, this waits."""
        while (topic := self._by_name.get(name)) is None:
            if name in self._being_created:
                await self.settled(name)
            else:
                await self.create([self.plan(NewTopic(name))])
        return topic

    def changing(self, topic: Topic) -> asyncio.Lock:
        """The lock for reading a topic's settings or partitions, changing and storing them: one task at a time.

        Raises:
            InternalTopic: it is not to be changed.
        """
        topic.check_changeable()
        lock = self._changing.get(topic.topic_id)
        if lock is None:
            lock = self._changing[topic.topic_id] = asyncio.Lock()
        return lock

    def plan_partitions(
        self, topic: Topic, count: int, replicas: Sequence[Sequence[int]] | None = None
    ) -> list[list[int]]:
        """The replica lists of all partitions of `topic` after growing to `count`; `replicas` assigns the new ones.

        Raises:
            InvalidPartitions, InvalidReplicaAssignment
        """
        if self._seat is not None and not topic.is_partitioned:
            raise InvalidPartitions(f"{topic.name} is not partitioned, and its log would change its bundle.")
        return self._placement.grown(topic.name.local, topic.replicas, count, replicas)

    async def add_partitions(self, topic: Topic, replicas: list[list[int]]) -> None:
        """Store what `plan_partitions` returned; `changing(topic)` is held over both."""
        await self._update(topic, replicas, topic.overrides)
        await self.made.happened([topic])

    async def set_config(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own settings; InvalidConfig when they do not hold.  `changing(topic)` is held."""
        config = self.config_of(overrides)
        await self._update(topic, topic.replicas, overrides)
        topic.config = config
        for partition in topic.open_partitions:
            partition.log.limits = limits_of(topic.config)

    async def terminate(self, topic: Topic) -> None:
        """From now on, and for good, no partition takes another message; what was appended before is durable then.

        Terminating twice is harmless.
        """
        async with self.changing(topic):
            await self._update(topic, topic.replicas, topic.overrides, terminate=True)
            topic.is_terminated = True
            for partition in topic.open_partitions:
                partition.is_terminated = True
        for partition in topic.open_partitions:
            await partition.durable_waits.until(partition.log.next_offset)
            self.terminated.happened(partition)

    async def _update(
        self,
        topic: Topic,
        replicas: list[list[int]],
        overrides: Mapping[str, str],
        *,
        terminate: bool = False,
    ) -> None:
        try:
            await self._write(topic, topic.encode(replicas, overrides, terminate=terminate))
        except MetadataError:
            if self._seat is not None:
                await self._look_again(topic)
            raise
        topic.overrides = overrides
        self._resize(topic, replicas)

    async def _write(self, topic: Topic, record: bytes) -> None:
        path = topic_path(topic.name)
        self._being_written[path] = record
        try:
            topic.version = await self._environment.metadata.put(path, record, topic.version)
        finally:
            del self._being_written[path]

    async def _look_again(self, topic: Topic) -> None:
        """A write has failed: find out what is stored.  Another broker may have written the same record meanwhile, or
        the answer was lost.  This broker took the change that it heard of for its own.
        """
        path = topic_path(topic.name)
        value = await self._environment.metadata.get(path)
        if value is not None and self._by_name.get(topic.name) is topic:
            stored = self._stored(path, value)
            if stored.topic_id == topic.topic_id and stored.version > topic.version:
                self._adopt(topic, stored)

    # --- deleting ----------------------------------------------------------------------------------------------------

    def begin_deletion(self, topic: Topic) -> list[Put | Delete]:
        """From now on the topic is not found, and its name is reserved.  Returns what deletes it, to be committed.

        Hold `changing(topic)` until `end_deletion` or `undo_deletion`.  Raises UnknownTopic if it is deleted already,
        and NotLeader if other brokers of the cluster serve a part of it.
        """
        if self._by_name.get(topic.name) is not topic:
            raise UnknownTopic(f"there is no topic {topic.name}")
        if not topic.is_here:
            raise NotLeader(
                f"other brokers serve partitions of {topic.name}: only one that has all deletes it"
            )
        self._unregister(topic)
        self._being_deleted[topic.name] = asyncio.get_running_loop().create_future()
        return [Delete(topic_path(topic.name)), self.deleted.tombstone(topic.topic_id, topic.name.full)]

    def undo_deletion(self, topic: Topic) -> None:
        """The transaction failed: the topic exists as before."""
        topic.is_deleted = False
        self._register(topic)
        self.limits.add(topic.name, topic.partition_count)
        self._being_deleted.pop(topic.name).set_result(None)

    def end_deletion(self, topic: Topic) -> None:
        """The deletion is durable: the name is free."""
        if self.observers:
            self.observers.tell(topic.pulsar_names, [])
        self._being_deleted.pop(topic.name).set_result(None)
