"""One topic: its record, its partitions, and the names of what it has.

A topic's record lies in the metadata store at `/topics/<tenant>/<namespace>/<domain>/<local name>`, JSON::

    {"v": 1, "id": "<32 hex digits>", "replicas": [[node ids of partition 0], ...], "configs": {...}, "created_ms": ...,
     "partitioned": false, "terminated": true}    (the last two only for a topic that is not, or is)

A partition's log is named `<tenant>/<namespace>/<domain>/<local name>-partition-<n>@<topic id>`, so a topic that is
deleted and made again never meets its old log.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from magnetar.base.errors import StorageError
from magnetar.base.names import TopicName
from magnetar.broker.cluster.seat import Seat
from magnetar.broker.errors import InternalTopic, UnknownTopic
from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import TopicConfig
from magnetar.broker.security.model import topic_resource
from magnetar.broker.topics.roots import TOPICS_ROOT
from magnetar.ledger.managed_ledger import ManagedLedger

# The nodes that have a partition, the leader first, and its leader epoch.  Without nodes no broker serves it now.
Placed = tuple[list[int], int]

# Of ten thousand topics nearly none has one of its own.
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


def topic_path(name: TopicName) -> str:
    return TOPICS_ROOT + name.path


def name_at(path: str) -> TopicName:
    """The name that `topic_path` was given."""
    return TopicName.at(path[len(TOPICS_ROOT) :])


class Topic:
    """One topic.  `overrides` are the settings that were given for it; `config` is what holds.

    `open_partition` makes a partition when a client first asks for it; `is_in_transaction` (producer id, epoch, full
    name, partition, transactional id) answers for the transactions.  With a `seat` the topic's partitions are spread
    over the brokers of a cluster: then `replicas` only counts them.

    A Pulsar client uses a topic that is not `is_partitioned` by its own name; Kafka clients see its partition 0.
    """

    __slots__ = (
        "_is_in_transaction",
        "_open_partition",
        "_partitions",
        "_seat",
        "config",
        "created_ms",
        "is_deleted",
        "is_internal",
        "is_partitioned",
        "is_terminated",
        "name",
        "overrides",
        "refused",
        "replicas",
        "resource",
        "topic_id",
        "version",
    )

    def __init__(
        self,
        name: TopicName,
        topic_id: bytes,
        replicas: list[list[int]],
        overrides: Mapping[str, str],
        config: TopicConfig,
        created_ms: int,
        version: int,
        is_partitioned: bool = True,
        *,
        open_partition: "Callable[[Topic, int], Partition]",
        is_in_transaction: Callable[[int, int, str, int, str | None], bool],
        seat: Seat | None = None,
    ) -> None:
        self._open_partition = open_partition
        self._seat = seat
        self._is_in_transaction = is_in_transaction
        self.name = name
        self.resource = topic_resource(name.full)  # as callers' rights to it are asked for
        self.topic_id = topic_id
        self.replicas = replicas
        self.overrides = overrides or _NONE
        self.config = config
        self.created_ms = created_ms
        self.version = version
        self.is_deleted = False
        self.is_internal = False  # shown to Kafka's clients, and not to be changed: `internal.py`
        self.is_partitioned = is_partitioned
        self.is_terminated = False
        self.refused: Mapping[int, ManagedLedger] = _NONE  # partitions whose logs cannot be served
        self._partitions: dict[int, Partition] = {}

    @property
    def partition_count(self) -> int:
        return len(self.replicas)

    def check_changeable(self) -> None:
        """Raises InternalTopic if the topic is the server's own."""
        if self.is_internal:
            raise InternalTopic(f"{self.name.local} is an internal topic.")

    def partition(self, index: int) -> Partition:
        """Partition `index`.

        Raises:
            UnknownTopic: there are fewer.
            NotLeader: another broker of the cluster serves it.
            StorageError: its log cannot be served.
        """
        found = self._partitions.get(index)
        if found is None:
            if index in self.refused:
                raise StorageError(self.refused[index].problem)
            if not 0 <= index < len(self.replicas):
                raise UnknownTopic(
                    f"{self.name} has {len(self.replicas)} partitions and no partition {index}"
                )
            found = self._partitions[index] = self._open_partition(self, index)
        return found

    def refuse(self, index: int, log: ManagedLedger) -> None:
        """The log of partition `index` cannot be served."""
        self.refused = {**self.refused, index: log}

    def show(self, index: int, partition: Partition) -> None:
        """Partition `index` is open: a broker of a cluster opens partitions before clients ask for them."""
        self._partitions[index] = partition

    def release(self, index: int) -> Partition | None:
        """Partition `index` if it was open; it is not any more, and the caller closes it."""
        if index in self.refused:
            self.refused = {one: log for one, log in self.refused.items() if one != index}
        return self._partitions.pop(index, None)

    @property
    def is_here(self) -> bool:
        """Whether this broker serves all of its partitions."""
        seat, namespace = self._seat, self.name.namespace_name
        return seat is None or all(seat.serves(namespace, name) for name in self.pulsar_names)

    def placed(self, start: int, end: int) -> Sequence[Placed]:
        """Where the partitions from `start` to `end` are; they need not have been opened yet."""
        seat, found, replicas = self._seat, self._partitions, self.replicas
        if seat is None:
            return [
                (replicas[index], found[index].log.leader_epoch if index in found else 0)
                for index in range(start, min(end, len(replicas)))
            ]
        leaders = [
            seat.leader_of(self.name.namespace_name, self.pulsar_name(index))
            for index in range(start, min(end, len(replicas)))
        ]
        return [([], -1) if leader is None else ([leader.node_id], leader.epoch) for leader in leaders]

    @property
    def open_partitions(self) -> list[Partition]:
        """The partitions that were asked for since the start, or that have data."""
        return list(self._partitions.values())

    def opened(self, index: int) -> Partition | None:
        """Partition `index` if a client has asked for it or it has data; this opens nothing."""
        return self._partitions.get(index)

    def let_go(self) -> None:
        """Make its partitions, which are closed for good, know it without its partitions: itself as they use it.

        A topic and its partitions know each other, and the memory of such a circle waits for a full collection, which a
        server that works never has (`server/garbage.py`).
        """
        alone = copy.copy(self)
        alone._partitions = {}
        for partition in self._partitions.values():
            partition.topic = alone

    def check_exists(self) -> None:
        """For a task that has waited since it found the topic: raises UnknownTopic if it was deleted meanwhile."""
        if self.is_deleted:
            raise UnknownTopic(f"there is no topic {self.name}")

    @property
    def logs(self) -> list[ManagedLedger]:
        """Those of the open partitions, and those that are refused."""
        return [*(partition.log for partition in self._partitions.values()), *self.refused.values()]

    @property
    def pulsar_names(self) -> list[str]:
        """The full names of its partitions, or its own when it is not partitioned."""
        return [self.pulsar_name(index) for index in range(self.partition_count)]

    def pulsar_name(self, index: int) -> str:
        """The full name of partition `index`, or its own when it is not partitioned."""
        return self.name.partition_name(index) if self.is_partitioned else self.name.full

    def is_in_transaction(
        self, producer_id: int, epoch: int, index: int, transactional_id: str | None
    ) -> bool:
        """Whether partition `index` is part of the producer's open transaction, and that is one of the id."""
        return self._is_in_transaction(producer_id, epoch, self.name.full, index, transactional_id)

    def log_name(self, index: int) -> str:
        name = self.name
        return f"{name.tenant}/{name.namespace}/{name.domain}/{name.local}-partition-{index}@{self.topic_id.hex()}"

    def encode(
        self, replicas: list[list[int]], overrides: Mapping[str, str], *, terminate: bool = False
    ) -> bytes:
        document: dict[str, object] = {
            "v": 1,
            "id": self.topic_id.hex(),
            "replicas": replicas,
            "configs": dict(overrides),
            "created_ms": self.created_ms,
        }
        if not self.is_partitioned and len(replicas) == 1:
            document["partitioned"] = False
        if self.is_terminated or terminate:
            document["terminated"] = True
        return json.dumps(document).encode()
