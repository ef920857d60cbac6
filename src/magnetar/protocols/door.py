"""The port of a protocol: what the server calls on a door, and what it gives a door.

A door speaks one protocol with its clients.  The server finds doors by the entry point group `magnetar.protocols`:
the name is the protocol's, the object is a function that takes `ServerSettings` and returns a `Door`.  The doors of
Kafka and Pulsar come with Magnetar and are always open.  A door of another package opens if `messagingProtocols`
names it, and reads its own settings, `<name>.<key>`, from `settings.door_options[name]`.

The server calls, in this order, `listeners` (it binds them, so that it reports a port in use at once) and `advertised`
for each of them.  It calls `open` once the broker is loaded.  Then it calls `connected` for each connection, and
`close` when all connections have ended.

A door translates between its protocol and the use cases (`broker/usecases`), and holds no rules of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from magnetar.base.arena import Arena
from magnetar.base.clock import Clock
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.metrics import Metrics
from magnetar.base.settings_tls import TlsSettings
from magnetar.base.turn_end import TurnEnd
from magnetar.broker.cluster.model import Endpoint, Nodes
from magnetar.broker.usecases.cases import UseCases

Buffer: TypeAlias = bytes | bytearray | memoryview

LOGIN_S_MAX: Final = 30.0  # for a complete login, and for a client's first bytes


@dataclass(frozen=True, slots=True)
class DoorListener:
    """A listener of a door: an empty `host` means every address, and `port` 0 a free one.

    When the server prints where it listens, `scheme` comes before the address and `remark` after it.  `node` counts
    the nodes of this process from 0; clients see the listener's `name`.  With `tls` sessions get decrypted bytes.
    `asks_for_login`: clients must log in.  `is_looked_up`: the server's HTTP look-ups of topics answer with this
    listener; a server has at most one such listener with TLS, and one without.
    """

    name: str
    host: str
    port: int
    scheme: str
    remark: str = ""
    node: int = 0
    tls: TlsSettings | None = None
    asks_for_login: bool = False
    is_looked_up: bool = False


class Peer(Protocol):
    """What a session may do to its connection."""

    def send(self, parts: list[Buffer]) -> None:
        """Send `parts` in order; what the socket has no room for is sent later.  The caller must not change them
        before that.
        """
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def has_hung_up(self) -> bool:
        """Whether the client has gone.  While nothing is read from it, `Session.closed` does not report that."""
        ...

    def close(self) -> None:
        """Send everything given to `send`, then close."""
        ...


class AcceptedPeer(Peer, Protocol):
    """A connection as its door gets it: with the addresses of both ends.

    `certificate_name` is the name in the client's certificate, verified by TLS, in the form of
    `base/distinguished_name.py`; None without one.
    """

    client_host: str
    local_host: str
    certificate_name: str | None


class Session(Protocol):
    """A door's side of one connection."""

    def get_buffer(self) -> memoryview:
        """The buffer into which the socket receives next."""
        ...

    def received(self, count: int) -> None:
        """The first `count` bytes of that buffer have been received."""
        ...

    def peer_is_slow(self, slow: bool) -> None:
        """The client does not read what it is sent (True), or does again (False)."""
        ...

    def closed(self) -> None:
        """The connection has gone."""
        ...

    def finish(self) -> None:
        """Take no more requests; close the connection once every due response has been sent."""
        ...


@dataclass(frozen=True, slots=True)
class DoorContext:
    """What all doors share.  `connection_count` returns the number of open client connections."""

    cases: UseCases
    nodes: Nodes
    clock: Clock
    arena: Arena
    memory: MemoryBudget
    turn_end: TurnEnd
    connection_count: Callable[[], int]


class Door(Protocol):
    """See the module's text."""

    name: str

    def listeners(self) -> Sequence[DoorListener]:
        """The listeners that the server opens for this door."""
        ...

    def advertised(self, listener: DoorListener, port: int) -> Endpoint:
        """The address for clients of `listener`, which has got `port`."""
        ...

    def open(self, context: DoorContext) -> None:
        """The broker is loaded, and connections come next."""
        ...

    def connected(self, listener: DoorListener, peer: AcceptedPeer, connection_id: int) -> Session: ...

    def declare_metrics(self, metrics: Metrics) -> None:
        """Add the door's own metrics to `/metrics`; by default none."""
        return

    def close(self) -> None:
        """Release what is left when all connections have ended; by default nothing."""
        return
