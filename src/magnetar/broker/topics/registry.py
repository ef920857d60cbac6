"""The topics of this broker: made, found, changed and deleted, and the partitions that belong to them.

How one is stored, and what its logs are called, is in `topic.py`; what a start finds besides topics, in
`leftovers.py`.  A partition whose log names ledgers that are missing is refused.

Ten thousand topics cost one metadata scan at start: a `Partition` object is made when it is first asked for.
"""

import asyncio
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from magnetar.base import randomness
from magnetar.base.errors import StorageError
from magnetar.base.event import AwaitedEvent, Event
from magnetar.base.names import TopicName
from magnetar.broker.cluster.placement import Placement
from magnetar.broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from magnetar.broker.log.partition import OpenLog, Partition
from magnetar.broker.log.topic import PartitionTopic
from magnetar.broker.policy.model import TopicConfig
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.policy.topic_config import TopicDefaults
from magnetar.broker.topics.deleted import DeletedTopics
from magnetar.broker.topics.leftovers import Leftovers
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.namespace_limits import NamespaceLimits
from magnetar.broker.topics.observers import TopicsObservers
from magnetar.broker.topics.roots import TOPICS_ROOT
from magnetar.broker.topics.topic import Topic, topic_path
from magnetar.ledger.chain_rows import METADATA_ROOT as LEDGERS_ROOT
from magnetar.ledger.environment import LedgerEnvironment
from magnetar.ledger.managed_ledger import LedgerLimits, ManagedLedger
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, Put, Versioned

_log = logging.getLogger(__name__)


class TopicRegistry:
    """All topics, by full name and by id.

    Its maker gives it what it does not know itself:

    * `make_partition` makes a partition of the kind that the topic asks for;
    * `is_in_transaction` answers for producer id, epoch, full topic name, partition and transactional id.

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
    ) -> None:
        self._environment = environment
        self._placement = placement
        self.defaults = defaults
        self._namespaces = namespaces  # topics that are created bring those that are missing along
        self._make_partition = make_partition
        self._opening = self._open_partition  # one bound method for all topics
        self.limits = NamespaceLimits(namespaces.policies_of)  # also how many topics each namespace has
        self._is_in_transaction = is_in_transaction
        self.made: Final[AwaitedEvent[Sequence[Topic]]] = AwaitedEvent()
        self.opened: Final[Event[Partition]] = Event()
        self.terminated: Final[Event[Partition]] = Event()
        self.observers = TopicsObservers()  # notified when topics are made, grown or deleted
        self._by_name: dict[TopicName, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        # Done when it is there, or will not be.
        self._being_created: dict[TopicName, asyncio.Future[None]] = {}
        # Done when the name is free, or the topic could not be deleted and has it again.
        self._being_deleted: dict[TopicName, asyncio.Future[None]] = {}
        self._ids: dict[str, bytes] = {}  # by full name
        self.changes = 0  # how often topics were made or deleted, or got partitions
        self._changing: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()  # by topic id
        self._logs: dict[str, Versioned] = {}  # metadata of logs that are not open yet, by log name
        self.deleted = DeletedTopics(environment)
        self._leftovers = Leftovers(environment, self.deleted)

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def config_of(self, overrides: Mapping[str, str]) -> TopicConfig:
        return self.defaults.config(overrides)

    def find(self, name: TopicName) -> Topic | None:
        return self._by_name.get(name)

    def get(self, name: TopicName) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}")
        return topic

    def get_by_id(self, topic_id: bytes) -> Topic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {uuid.UUID(bytes=topic_id)}")
        return topic

    # --- start -------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read every topic and every log's metadata; open the partitions that have a log.  See the module's text."""
        metadata = self._environment.metadata
        prefix = len(LEDGERS_ROOT)
        self._logs = {path[prefix:]: value for path, value in await metadata.scan(LEDGERS_ROOT)}
        for path, value in await metadata.scan(TOPICS_ROOT):
            tenant, namespace, domain, local = path[len(TOPICS_ROOT) :].split("/")
            document = json.loads(value.value)
            topic = self._topic(
                TopicName(tenant, namespace, local, domain == "persistent"),
                bytes.fromhex(document["id"]),
                self._placement.nodes.adopt(document["replicas"]),
                document["configs"],
                document["created_ms"],
                value.version,
                document.get("partitioned", True),
            )
            topic.is_terminated = document.get("terminated", False)
            self._register(topic)
            self.limits.add(topic.name, topic.partition_count)
            for index in range(topic.partition_count):
                if topic.log_name(index) in self._logs:
                    with suppress(StorageError):  # said where it was found
                        topic.partition(index)

    async def go_on_deleting(self, cursors: Mapping[str, Sequence[str]]) -> None:
        """Finish deletions that had begun, and report data of no topic (`leftovers.py`).

        `cursors` are the paths of cursors that belong to no topic, by topic id in hex.
        """
        await self._leftovers.settle(self, self._logs, cursors)

    @property
    def problem(self) -> str | None:
        """What the operator should know: partitions that are refused, data that no topic owns."""
        refused = [log.problem for topic in self for log in topic.refused.values()]
        if not refused:
            return self._leftovers.problem
        more = f" (and {len(refused) - 1} partitions more)" if len(refused) > 1 else ""
        return f"{refused[0]}{more}"

    def _register(self, topic: Topic) -> None:
        self.changes += 1
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._ids[topic.resource.name] = topic.topic_id

    def find_partition(self, full_name: str, index: int) -> Partition | None:
        """The partition of the topic that has the name now; None if there is none."""
        topic = self._by_name.get(TopicName.parse(full_name))
        return topic.partition(index) if topic is not None and index < topic.partition_count else None

    def id_of(self, full_name: str) -> bytes | None:
        """The id of the topic that has the name now."""
        return self._ids.get(full_name)

    def identity(self, full_name: str) -> str:
        """The id, in hex, of the topic that has the name now; raises UnknownTopic if there is none."""
        found = self._ids.get(full_name)
        if found is None:
            raise UnknownTopic(f"there is no topic {full_name}")
        return found.hex()

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
        )

    def _open_partition(self, topic: Topic, index: int) -> Partition:
        open_log = partial(self._open_log, topic.log_name(index), self._limits_of(topic.config))
        partition = self._make_partition(topic, index, topic.replicas[index], open_log)
        log = partition.log
        if log.problem is not None:
            _log.error(log.problem)
            topic.refuse(index, log)
            raise StorageError(log.problem)
        self.opened.happened(partition)
        partition.is_terminated = topic.is_terminated
        return partition

    def _open_log(
        self, name: str, limits: LedgerLimits, *, on_advance: Callable[[], None], on_reset: Callable[[], None]
    ) -> ManagedLedger:
        log = ManagedLedger(name, self._environment, limits, on_advance=on_advance, on_reset=on_reset)
        stored = self._logs.pop(name, None)
        if stored is not None:
            log.restore(stored.value, stored.version, self._environment.stats)
        return log

    @staticmethod
    def _limits_of(config: TopicConfig) -> LedgerLimits:
        """The limits of one log: by segment.jitter.ms, the logs of a topic begin new ledgers at different times."""
        age_ms_max = config.segment_ms
        if config.segment_jitter_ms:
            age_ms_max -= randomness.between(0, min(config.segment_jitter_ms, config.segment_ms) - 1)
        return LedgerLimits(size_bytes_max=config.segment_bytes, age_ms_max=age_ms_max)

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
            await self._environment.metadata.commit(
                [Put(topic_path(t.name), t.encode(t.replicas, t.overrides), MUST_NOT_EXIST) for t in topics]
            )
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
            partition.log.limits = self._limits_of(topic.config)

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
        topic.version = await self._environment.metadata.put(
            topic_path(topic.name), topic.encode(replicas, overrides, terminate=terminate), topic.version
        )
        before = topic.pulsar_names if self.observers and len(replicas) != topic.partition_count else None
        self.limits.add(topic.name, len(replicas) - topic.partition_count)
        self.changes += len(replicas) != topic.partition_count
        topic.replicas = replicas
        topic.overrides = overrides
        if len(replicas) > 1:
            topic.is_partitioned = True  # Kafka can add partitions to any topic
        if before is not None:
            after = topic.pulsar_names
            self.observers.tell(sorted({*before} - {*after}), sorted({*after} - {*before}))

    # --- deleting ----------------------------------------------------------------------------------------------------

    def begin_deletion(self, topic: Topic) -> list[Put | Delete]:
        """From now on the topic is not found, and its name is reserved.  Returns what deletes it, to be committed.

        Hold `changing(topic)` until `end_deletion` or `undo_deletion`.  Raises UnknownTopic if it is deleted already.
        """
        if self._by_name.get(topic.name) is not topic:
            raise UnknownTopic(f"there is no topic {topic.name}")
        topic.is_deleted = True
        self.changes += 1
        self.limits.add(topic.name, -topic.partition_count)
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        del self._ids[topic.resource.name]
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
