"""The topics of this broker: made, found, changed and deleted, and the partitions that belong to them.

A topic's record lies in the metadata store at `/topics/<tenant>/<namespace>/<domain>/<local name>`, JSON::

    {"v": 1, "id": "<32 hex digits>", "replicas": [[node ids of partition 0], ...], "configs": {...}, "created_ms": ...}

A partition's log is named `<tenant>/<namespace>/<domain>/<local name>-partition-<n>@<topic id>`, so a topic that is
deleted and made again never meets its old log; logs of topics that are gone are removed when the broker starts.

Ten thousand topics cost one metadata scan at start: a `Partition` object is made when somebody first asks for it.
"""

import asyncio
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from magnetar.broker.nodes import Nodes
from magnetar.broker.partition import Partition
from magnetar.broker.topic_config import TopicConfig, TopicDefaults
from magnetar.ledger.managed_ledger import METADATA_ROOT as LEDGERS_ROOT
from magnetar.ledger.managed_ledger import LedgerEnvironment, LedgerLimits, ManagedLedger
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, Put, Versioned

TOPICS_ROOT: Final = "/topics/"
SNAPSHOTS_ROOT: Final = "/producer-snapshots/"
PARTITIONS_MAX: Final = (
    10_000  # per topic; a limit against typing errors, far above what one process serves well
)


def topic_path(name: TopicName) -> str:
    return f"{TOPICS_ROOT}{name.tenant}/{name.namespace}/{name.domain}/{name.local}"


@dataclass(slots=True)
class NewTopic:
    """What is asked of `create`.  -1 stands for the broker's default; `replicas` assigns by hand."""

    name: TopicName
    partition_count: int = -1
    replication_factor: int = -1
    replicas: list[list[int]] | None = None
    configs: Mapping[str, str | None] = field(default_factory=dict)


class Topic:
    """One topic.  `overrides` are the settings that were given for it; `config` is what holds."""

    __slots__ = (
        "_partitions",
        "_registry",
        "config",
        "created_ms",
        "name",
        "overrides",
        "replicas",
        "topic_id",
        "version",
    )

    def __init__(
        self,
        registry: "TopicRegistry",
        name: TopicName,
        topic_id: bytes,
        replicas: list[list[int]],
        overrides: dict[str, str],
        created_ms: int,
        version: int,
    ) -> None:
        self._registry = registry
        self.name = name
        self.topic_id = topic_id
        self.replicas = replicas
        self.overrides = overrides
        self.config = registry.config_of(overrides)
        self.created_ms = created_ms
        self.version = version
        self._partitions: dict[int, Partition] = {}

    @property
    def partition_count(self) -> int:
        return len(self.replicas)

    def partition(self, index: int) -> Partition:
        """Partition `index`; UnknownTopic when there are fewer."""
        found = self._partitions.get(index)
        if found is None:
            if not 0 <= index < len(self.replicas):
                raise UnknownTopic(
                    f"{self.name} has {len(self.replicas)} partitions and no partition {index}"
                )
            found = self._partitions[index] = self._registry.open_partition(self, index)
        return found

    def leader_epoch(self, index: int) -> int:
        """The leader epoch of partition `index`, which need not have been opened yet."""
        found = self._partitions.get(index)
        return 0 if found is None else found.log.leader_epoch

    @property
    def open_partitions(self) -> list[Partition]:
        """The partitions that somebody has asked for since the start, or that have data."""
        return list(self._partitions.values())

    def log_name(self, index: int) -> str:
        name = self.name
        return f"{name.tenant}/{name.namespace}/{name.domain}/{name.local}-partition-{index}@{self.topic_id.hex()}"

    def encode(self, replicas: list[list[int]], overrides: Mapping[str, str]) -> bytes:
        document = {
            "v": 1,
            "id": self.topic_id.hex(),
            "replicas": replicas,
            "configs": dict(overrides),
            "created_ms": self.created_ms,
        }
        return json.dumps(document).encode()


class TopicRegistry:
    """All topics, by full name and by id."""

    def __init__(
        self,
        environment: LedgerEnvironment,
        nodes: Nodes,
        defaults: TopicDefaults,
        partition_count_default: int,
        replication_factor_default: int,
    ) -> None:
        self._environment = environment
        self._nodes = nodes
        self.defaults = defaults
        self._partition_count_default = partition_count_default
        self._replication_factor_default = replication_factor_default
        self._by_name: dict[TopicName, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._being_created: dict[
            TopicName, asyncio.Future[None]
        ] = {}  # done when it is there, or will not be
        self._logs: dict[str, Versioned] = {}  # metadata of logs that nobody has opened yet, by log name

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
        """Read every topic and every log's metadata; open the partitions that have a log, drop logs without a topic."""
        metadata = self._environment.metadata
        prefix = len(LEDGERS_ROOT)
        self._logs = {path[prefix:]: value for path, value in await metadata.scan(LEDGERS_ROOT)}
        for path, value in await metadata.scan(TOPICS_ROOT):
            tenant, namespace, domain, local = path[len(TOPICS_ROOT) :].split("/")
            document = json.loads(value.value)
            topic = Topic(
                self,
                TopicName(tenant, namespace, local, domain == "persistent"),
                bytes.fromhex(document["id"]),
                document["replicas"],
                document["configs"],
                document["created_ms"],
                value.version,
            )
            self._register(topic)
            for index in range(topic.partition_count):
                if topic.log_name(index) in self._logs:
                    topic.partition(index)
        for name, value in self._logs.items():
            orphan = ManagedLedger(name, self._environment, LedgerLimits())
            orphan.restore(value.value, value.version, self._environment.stats)
            await orphan.delete()
        self._logs.clear()

    def _register(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def open_partition(self, topic: Topic, index: int) -> Partition:
        log = ManagedLedger(topic.log_name(index), self._environment, self._limits_of(topic.config))
        stored = self._logs.pop(log.name, None)
        if stored is not None:
            log.restore(stored.value, stored.version, self._environment.stats)
        return Partition(topic, index, topic.replicas[index], log)

    @staticmethod
    def _limits_of(config: TopicConfig) -> LedgerLimits:
        return LedgerLimits(size_bytes_max=config.segment_bytes, age_ms_max=config.segment_ms)

    # --- changes -----------------------------------------------------------------------------------------------------

    def plan(self, wanted: NewTopic) -> Topic:
        """The topic that `create` would make, checked but not stored.

        Raises:
            TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, InvalidConfig
        """
        name = wanted.name
        if name in self._by_name or name in self._being_created:
            raise TopicExists(f"topic {name} exists already")
        if wanted.replicas is not None:
            if wanted.partition_count != -1 or wanted.replication_factor != -1:
                raise InvalidReplicaAssignment(
                    "give either a replica assignment or numbers of partitions and replicas"
                )
            replicas = self.checked_assignment(wanted.replicas)
        else:
            count = self._partition_count_default if wanted.partition_count == -1 else wanted.partition_count
            factor = (
                self._replication_factor_default
                if wanted.replication_factor == -1
                else wanted.replication_factor
            )
            if not 1 <= count <= PARTITIONS_MAX:
                raise InvalidPartitions(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {count}")
            if not 1 <= factor <= len(self._nodes):
                raise InvalidReplicationFactor(
                    f"{factor} replicas are not possible with {len(self._nodes)} nodes"
                )
            replicas = self._nodes.assign(0, count, factor)
        overrides = self.defaults.canonical(wanted.configs)
        return Topic(self, name, uuid.uuid4().bytes, replicas, overrides, self._environment.clock.now_ms(), 0)

    def checked_assignment(self, replicas: Sequence[Sequence[int]]) -> list[list[int]]:
        """A manual assignment, refused with InvalidReplicaAssignment unless every node exists and none is repeated."""
        if not 1 <= len(replicas) <= PARTITIONS_MAX:
            raise InvalidPartitions(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {len(replicas)}")
        if len({len(one) for one in replicas}) != 1:
            raise InvalidReplicaAssignment("all partitions of a topic have the same number of replicas")
        for one in replicas:
            if not one or len(set(one)) != len(one) or not all(node in self._nodes.by_id for node in one):
                raise InvalidReplicaAssignment(
                    f"{list(one)} is not a list of different nodes of this cluster"
                )
        return [list(one) for one in replicas]

    async def create(self, topics: Sequence[Topic]) -> None:
        """Store topics that `plan` made, all in one step; they can be used when it returns."""
        for topic in topics:
            if topic.name in self._by_name or topic.name in self._being_created:
                raise TopicExists(f"topic {topic.name} exists already")
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._being_created |= {topic.name: settled for topic in topics}
        try:
            await self._environment.metadata.commit(
                [Put(topic_path(t.name), t.encode(t.replicas, t.overrides), MUST_NOT_EXIST) for t in topics]
            )
            for topic in topics:
                self._register(topic)
        finally:
            for topic in topics:
                del self._being_created[topic.name]
            settled.set_result(None)

    async def ensure(self, name: TopicName) -> Topic:
        """The topic, made with the defaults if it is not there; what one client makes, another one waits for."""
        while (topic := self._by_name.get(name)) is None:
            settled = self._being_created.get(name)
            if settled is not None:
                await settled
            else:
                await self.create([self.plan(NewTopic(name))])
        return topic

    async def add_partitions(self, topic: Topic, count: int, replicas: list[list[int]] | None = None) -> None:
        """Grow `topic` to `count` partitions; `replicas` assigns the new ones by hand."""
        added = count - topic.partition_count
        if added <= 0:
            raise InvalidPartitions(
                f"{topic.name} has {topic.partition_count} partitions and can only get more of them"
            )
        if count > PARTITIONS_MAX:
            raise InvalidPartitions(f"a topic has at most {PARTITIONS_MAX} partitions")
        factor = len(topic.replicas[0])
        if replicas is None:
            replicas = self._nodes.assign(topic.partition_count, added, factor)
        else:
            if len(replicas) != added:
                raise InvalidReplicaAssignment(
                    f"{added} new partitions need as many assignments, not {len(replicas)}"
                )
            replicas = self.checked_assignment(replicas)
            if len(replicas[0]) != factor:
                raise InvalidReplicaAssignment(f"the topic's partitions have {factor} replicas each")
        await self._update(topic, topic.replicas + replicas, topic.overrides)

    async def set_config(self, topic: Topic, overrides: dict[str, str]) -> None:
        """Replace the topic's own settings; InvalidConfig when they do not hold."""
        config = self.config_of(overrides)
        await self._update(topic, topic.replicas, overrides)
        topic.config = config
        for partition in topic.open_partitions:
            partition.log.limits = self._limits_of(topic.config)

    async def _update(self, topic: Topic, replicas: list[list[int]], overrides: dict[str, str]) -> None:
        topic.version = await self._environment.metadata.put(
            topic_path(topic.name), topic.encode(replicas, overrides), topic.version
        )
        topic.replicas = replicas
        topic.overrides = overrides

    async def delete(self, topic: Topic) -> None:
        """Remove a topic and, after that, its logs.  A crash in between leaves logs that the next start removes."""
        if self._by_name.get(topic.name) is not topic:
            raise UnknownTopic(f"there is no topic {topic.name}")
        del self._by_name[topic.name]
        self._by_id.pop(topic.topic_id, None)
        await self._environment.metadata.delete(topic_path(topic.name))
        for partition in topic.open_partitions:
            partition.close()
            await partition.log.delete()
        await self._environment.metadata.commit(
            [Delete(SNAPSHOTS_ROOT + topic.log_name(partition.index)) for partition in topic.open_partitions]
        )
