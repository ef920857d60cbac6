"""What the server's listeners were told: addresses, what clients are told of them, and limits on connections.

Made by `base/settings.py`.  A host is written without brackets; empty stands for every address of this machine, and
`localhost` for both of its loopback addresses (`server/listeners.py` binds them).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.listeners import LOCALHOST, Listener

# Hosts that stand for several addresses: of those a client is told the one that it came to.
SEVERAL_ADDRESSES: Final = ("", LOCALHOST)


def told_host(host: str) -> str:
    """What clients are told of a listener on `host` when nothing else is said: empty for the address they came to."""
    return "" if host in SEVERAL_ADDRESSES else host


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Sizes in bytes.  `queued_request_bytes_max` = -1: the server's own choice; `idle_ms_max` = -1: no limit.

    `advertised` has what clients are told for those listeners that have it, {name: (host, port)}; port 0
    stands for the port that is listened on.  For the others it is the listener's own host or, if that stands
    for several addresses, the one that the client itself connected to.
    """

    listeners: tuple[Listener, ...]
    advertised: Mapping[str, tuple[str, int]]
    http_host: str
    http_port: int
    http_allowed_hosts: tuple[str, ...]
    http_allowed_origins: tuple[str, ...]
    pulsar: "PulsarNetworkSettings"
    connections_max: int
    connections_per_ip_max: int
    idle_ms_max: int
    request_bytes_max: int
    queued_request_bytes_max: int
    fetch_bytes_max: int
    fetch_sessions_max: int

    def listeners_of(self, node: int) -> tuple[Listener, ...]:
        """The listeners of the `node`-th node id (from 0): ports are counted up, free ones stay free."""
        return tuple(
            Listener(one.name, one.host, one.port + node if one.port else 0, one.protocol)
            for one in self.listeners
        )

    def advertised_of(self, node: int) -> dict[str, tuple[str, int]]:
        """As `listeners_of`, for what clients are told."""
        return {name: (host, port + node if port else 0) for name, (host, port) in self.advertised.items()}


@dataclass(frozen=True, slots=True)
class PulsarNetworkSettings:
    """The Pulsar listener, one for the process.  `advertised_host` is empty when clients are told the address that they
    came to, `advertised_port` 0 for the port that is listened on; sizes in bytes, 0 as `keep_alive_s` means that nobody
    is asked.
    """

    host: str
    port: int
    advertised_host: str
    advertised_port: int
    message_bytes_max: int
    keep_alive_s: int
