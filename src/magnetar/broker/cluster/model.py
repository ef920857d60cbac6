"""The node ids that one process shows to Kafka clients, and the address of each; the addresses for Pulsar clients.

A Kafka client knows brokers by id.  One process can have several (`--nodes 3`): each has its own listeners,
partitions and coordinators are spread over them, and a request to the wrong one is refused, as in Kafka.

A Pulsar client looks a topic up, over Pulsar's protocol or over HTTP, and gets the addresses of one advertised listener
(PIP-61).  Both doors answer from `PulsarEndpoints`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from magnetar.base.pulsar_listeners import PULSAR, PULSAR_TLS, Addresses
from magnetar.broker.errors import NotCoordinator


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address that a listener tells its clients; an empty host means the one to which they have connected."""

    host: str
    port: int

    def url(self, scheme: str, own_host: str) -> str:
        """The address as a URL for Pulsar's clients; `own_host` is the host to which this client has connected."""
        host = self.host or own_host
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"


Endpoints = Mapping[str, Endpoint]
"""The endpoints of one listener, by scheme."""

OWN_LISTENER: Final = "pulsar"  # a name of the server's own addresses, if no listener is advertised
NO_LISTENER: Final = "the broker do not have {} listener"  # Pulsar's text, which its clients know


@dataclass(frozen=True, slots=True)
class PulsarEndpoints:
    """`plain` and `tls` are for clients that name no listener, None if the server has no such listener; `listeners` are
    the advertised ones, by name.
    """

    plain: Endpoint | None = None
    tls: Endpoint | None = None
    listeners: Mapping[str, Addresses] = field(default_factory=dict)

    def of(self, listener: str) -> Endpoints | None:
        """The endpoints of the advertised listener that a client asks for, or that it has connected to; `listener` is
        empty for the internal one.  None: there is no such listener.
        """
        if listener in self.listeners:
            return {scheme: Endpoint(*address) for scheme, address in self.listeners[listener].items()}
        if listener and (self.listeners or listener != OWN_LISTENER):
            return None
        own = {PULSAR: self.plain, PULSAR_TLS: self.tls}
        return {scheme: endpoint for scheme, endpoint in own.items() if endpoint is not None}


NO_ENDPOINTS: Final = PulsarEndpoints()


def url_of(endpoints: Endpoints, scheme: str, own_host: str) -> str | None:
    """The URL of this scheme, None if there is none; `own_host` is the host to which the client has connected."""
    endpoint = endpoints.get(scheme)
    return None if endpoint is None else endpoint.url(scheme, own_host)


@dataclass(slots=True)
class Node:
    node_id: int
    rack: str | None = None
    advertised: dict[str, Endpoint] = field(default_factory=dict)  # by listener name


class Nodes:
    """The nodes of this process, ordered by id; the first one is also the controller."""

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
        """The id of the only node; None if there are several."""
        return self.all[0].node_id if len(self.all) == 1 else None

    def assign(self, first_partition: int, partition_count: int, replication_factor: int) -> list[list[int]]:
        """Replica lists (node ids, the leader first) for new partitions: leaders take turns, each followed by its
        neighbours.
        """
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
        """Stored replica lists, reduced to the nodes of this process.

        Every node of this process reaches all data, so nothing is lost with a node that is gone (fewer nodes, another
        `node.id`).  It is left out, and partitions without a node are given to the present nodes in turn.
        """
        ids = [node.node_id for node in self.all]
        return [
            [node_id for node_id in one if node_id in self.by_id] or [ids[index % len(ids)]]
            for index, one in enumerate(replicas)
        ]

    def coordinator_of(self, key: str) -> Node:
        """The node that coordinates a group or a transactional id; the same after a restart."""
        return self.all[crc32(key.encode()) % len(self.all)]

    def coordinates(self, node: Node, key: str) -> bool:
        """Whether `node` is the one that `coordinator_of` returns."""
        return len(self.all) == 1 or self.coordinator_of(key) is node

    def check_coordinator(self, node: Node, key: str) -> None:
        """Raise NotCoordinator if `coordinator_of` returns another node than `node`."""
        if not self.coordinates(node, key):
            raise NotCoordinator("Another node is the coordinator of this group or transactional id.")


PARTITIONS_MAX: Final = (
    10_000  # of one topic; a limit against typing errors, far above what one process serves well
)
