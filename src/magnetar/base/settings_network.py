"""Settings of the server's listeners: where they listen, which addresses clients get, and limits on connections.

Made by `base/settings.py`.  A host is written without brackets; empty stands for every address of this machine, and
`localhost` for both of its loopback addresses (`server/listeners.py` binds them).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.listeners import LOCALHOST, Listener
from magnetar.base.principal_rules import PrincipalRules
from magnetar.base.pulsar_listeners import PulsarListeners
from magnetar.base.settings_sasl import SaslSettings
from magnetar.base.settings_tls import TlsSettings

# Hosts that stand for several addresses: the server advertises the one that the client connected to.
SEVERAL_ADDRESSES: Final = ("", LOCALHOST)


def client_host(host: str) -> str:
    """The host that a listener on `host` advertises by default; empty for the address that the client connected to."""
    return "" if host in SEVERAL_ADDRESSES else host


def bare_host(host: str) -> str:
    """A host in the form of this module: without brackets, and empty for every address."""
    bare = host.removeprefix("[").removesuffix("]")
    return "" if bare in ("0.0.0.0", "::", "*") else bare  # noqa: S104 - compared with, not bound to


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """Sizes in bytes.  `queued_request_bytes_max` = -1: the server's own choice; `idle_ms_max` = -1: no limit.

    `advertised` has the addresses that clients are given, {name: (host, port)}, for listeners that set one; port 0
    stands for the port that is listened on.  For the others it is the listener's own host or, if that stands for
    several addresses, the one that the client itself connected to.  The next three are by listener name: `tls` has the
    TLS settings of listeners with TLS, and `principals` the rules by which certificates name clients.  `sasl` says how
    clients log in, for listeners that require it.  One of the ports of HTTP may be None, not both.  `own_connections`
    has the texts of keys of `base/settings_connections.py` that were set for one listener, by (listener, key).
    """

    listeners: tuple[Listener, ...]
    tls: Mapping[str, TlsSettings]
    principals: Mapping[str, PrincipalRules]
    sasl: Mapping[str, SaslSettings]
    advertised: Mapping[str, tuple[str, int]]
    http_host: str
    http_port: int | None
    https_port: int | None
    http_allowed_hosts: tuple[str, ...]
    http_allowed_origins: tuple[str, ...]
    pulsar: "PulsarNetworkSettings"
    own_connections: Mapping[tuple[str, str], str]
    idle_ms_max: int
    request_bytes_max: int
    queued_request_bytes_max: int
    fetch_bytes_max: int
    fetch_sessions_max: int

    @property
    def https_tls(self) -> TlsSettings | None:
        """TLS of the HTTP port, if there is one: the same as Pulsar's."""
        return None if self.https_port is None else self.pulsar.tls

    def every_listener(self, node_count: int) -> list[Listener]:
        """All of them, over all nodes and protocols; none may have another's address."""
        rows = [
            ("HTTP", self.http_host, self.http_port, "HTTP"),
            ("HTTPS", self.http_host, self.https_port, "HTTP"),
            ("PULSAR", self.pulsar.host, self.pulsar.port, "PULSAR"),
            ("PULSAR+SSL", self.pulsar.host, self.pulsar.tls_port, "PULSAR"),
            *((one.name, one.host, one.port, "PULSAR") for one in self.pulsar.listeners.bindings),
        ]
        others = [Listener(name, host, port, kind) for name, host, port, kind in rows if port is not None]
        return [*(one for node in range(node_count) for one in self.listeners_of(node)), *others]

    def listeners_of(self, node: int) -> tuple[Listener, ...]:
        """The listeners of the `node`-th node id (from 0): ports are counted up, free ones stay free."""
        return tuple(
            Listener(one.name, one.host, one.port + node if one.port else 0, one.protocol)
            for one in self.listeners
        )

    def advertised_of(self, node: int) -> dict[str, tuple[str, int]]:
        """As `listeners_of`, for the addresses that clients are given."""
        return {name: (host, port + node if port else 0) for name, (host, port) in self.advertised.items()}


@dataclass(frozen=True, slots=True)
class PulsarNetworkSettings:
    """The Pulsar listeners of the process.  `advertised_host` is empty when clients get the address that they connected
    to; `advertised_port` is 0 for the port that is listened on.  Sizes are in bytes.  `keep_alive_s` = 0: the server
    sends no PING.  `tls_port` and `tls` are those of the second listener, pulsar+ssl, if the settings ask for one; its
    clients get `advertised_host` with the port that it listens on.  One of the ports may be None, not both.
    `listeners` has those of `base/pulsar_listeners.py`; their default comes before `advertised_host`.
    `connections_max` and `connections_per_address_max` = 0: no limit.
    """

    host: str
    port: int | None
    tls_port: int | None
    tls: TlsSettings | None
    advertised_host: str
    advertised_port: int
    listeners: PulsarListeners
    message_bytes_max: int
    keep_alive_s: int
    connections_max: int
    connections_per_address_max: int
