"""The node ids that one process presents to Kafka clients, and where each is reached.

A Kafka client talks to brokers by id.  One process can carry several (`--nodes 3`): each has its own listeners,
partitions and coordinators are spread over them, and a request at the wrong one is refused as Kafka would.
"""

from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from magnetar.broker.errors import NotCoordinator


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener tells its clients to connect; an empty host means the one that they came to."""

    host: str
    port: int

    def url(self, scheme: str, own_host: str) -> str:
        """As Pulsar's clients expect it; `own_host` is the host that this one came to."""
        host = self.host or own_host
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"


@dataclass(slots=True)
class Node:
    node_id: int
    rack: str | None = None
    advertised: dict[str, Endpoint] = field(default_factory=dict)  # by listener name


class Nodes:
    """The nodes of this process, in order of id; the first one is also the controller."""

    def __init__(self, nodes: list[Node]) -> None:
        assert nodes, "there is at least one node"
        self.all = sorted(nodes, key=lambda node: node.node_id)
        self.by_id = {node.node_id: node for node in self.all}
        self._next_start = 0

    def __len__(self) -> int:
        return len(self.all)

    @property
    def controller_id(self) -> int:
        return self.all[0].node_id

    @property
    def only_id(self) -> int | None:
        """The node's, if there is one only."""
        return self.all[0].node_id if len(self.all) == 1 else None

    def assign(self, first_partition: int, partition_count: int, replication_factor: int) -> list[list[int]]:
        """Replica lists for new partitions: leaders take turns, each followed by its neighbours."""
        start = self._next_start
        self._next_start += partition_count
        ids = [node.node_id for node in self.all]
        return [
            [
                ids[(start + first_partition + partition + step) % len(ids)]
                for step in range(replication_factor)
            ]
            for partition in range(partition_count)
        ]

    def adopt(self, replicas: list[list[int]]) -> list[list[int]]:
        """Stored replica lists as they can be served here.

        Every node of this process reaches all data, so a node that is gone (fewer nodes, another `node.id`) takes
        nothing with it: it is left out, and partitions that have no node left go to those that are there, in turn.
        """
        ids = [node.node_id for node in self.all]
        return [
            [node_id for node_id in one if node_id in self.by_id] or [ids[index % len(ids)]]
            for index, one in enumerate(replicas)
        ]

    def coordinator_of(self, key: str) -> Node:
        """The node that coordinates a group or a transactional id: stable across restarts."""
        return self.all[crc32(key.encode()) % len(self.all)]

    def coordinates(self, node: Node, key: str) -> bool:
        """Whether `node` is the one that `coordinator_of` names."""
        return len(self.all) == 1 or self.coordinator_of(key) is node

    def check_coordinator(self, node: Node, key: str) -> None:
        """Raises NotCoordinator when it is another node than `node`."""
        if not self.coordinates(node, key):
            raise NotCoordinator("Another node is the coordinator of this group or transactional id.")


PARTITIONS_MAX: Final = (
    10_000  # per topic; a limit against typing errors, far above what one process serves well
)
