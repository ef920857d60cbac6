"""Where clients reach a broker of a cluster: what its path in the metadata store says, JSON::

    {"v": 1, "node": 3, "rack": null, "kafka": {"PLAINTEXT": ["b3.example", 9092]},
     "addresses": {"pulsar": ["b3.example", 6650], "http": ["b3.example", 8080]},
     "listeners": {"external": {"pulsar": ["b3.example.com", 6650]}}}

`kafka` has the listeners of its node.  `addresses` are for Pulsar's clients and over HTTP, by scheme, and `listeners`
the advertised ones (PIP-61).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from magnetar.base.pulsar_listeners import PULSAR, PULSAR_TLS, Addresses
from magnetar.broker.cluster.model import Endpoint, Endpoints, Node, PulsarEndpoints

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class Place(NamedTuple):
    """See the module's text."""

    node: Node
    addresses: Endpoints = _NONE
    listeners: Mapping[str, Addresses] = _NONE

    @property
    def pulsar(self) -> PulsarEndpoints:
        return PulsarEndpoints(self.addresses.get(PULSAR), self.addresses.get(PULSAR_TLS), self.listeners)

    def of(self, listener: str) -> Endpoints | None:
        """As `PulsarEndpoints.of`; of the listeners that are not advertised also the addresses over HTTP."""
        found = self.pulsar.of(listener)
        return found if found is None or listener in self.listeners else self.addresses

    def encode(self) -> bytes:
        document = {
            "v": 1,
            "node": self.node.node_id,
            "rack": self.node.rack,
            "kafka": _written(self.node.advertised),
            "addresses": _written(self.addresses),
            "listeners": {name: dict(addresses) for name, addresses in self.listeners.items()},
        }
        return json.dumps(document).encode()

    @staticmethod
    def read(value: bytes) -> "Place":
        document = json.loads(value)
        return Place(
            Node(document["node"], document["rack"], _read(document["kafka"])),
            _read(document["addresses"]),
            {
                name: {scheme: (host, port) for scheme, (host, port) in addresses.items()}
                for name, addresses in document["listeners"].items()
            },
        )


@dataclass(frozen=True, slots=True)
class Here:
    """A broker of a cluster, from the beginning of its session to its end: no other ever has its name."""

    name: str
    place: Place


def _written(endpoints: Mapping[str, Endpoint]) -> dict[str, tuple[str, int]]:
    return {name: (endpoint.host, endpoint.port) for name, endpoint in endpoints.items()}


def _read(document: Mapping[str, Any]) -> dict[str, Endpoint]:
    return {name: Endpoint(host, port) for name, (host, port) in document.items()}
