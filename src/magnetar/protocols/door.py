"""The port of a protocol: what the server asks of a door, and what it gives one.

A door speaks one protocol with its clients.  The server finds doors by the entry point group `magnetar.protocols`:
the name is the protocol's, the object a function that takes `ServerSettings` and returns a `Door`.  Those of Kafka and
Pulsar come with Magnetar and are always open; another package's is opened when `messagingProtocols` names it, and reads
settings of its own, `<name>.<key>`, from `settings.door_options[name]`.

In this order: `listeners` (the server binds them, so that a port in use is said at once), `advertised` for each of
them, `open` once the broker has been loaded, `connected` for each connection, `close` when all connections have ended.

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

LOGIN_S_MAX: Final = 30.0  # for all of a login, as for a client's first word


@dataclass(frozen=True, slots=True)
class DoorListener:
    """Where a door listens: `host` is empty for every address, `port` 0 a free one.

    `scheme` stands before the address where the server says that it listens, `remark` behind it.  `node` counts the
    nodes of this process from 0; clients learn the listener's `name`.  With `tls` sessions get what stands behind it;
    `asks_for_login` says that they serve no client without one.  `is_looked_up`: the answers of the server's HTTP about
    where a topic is name this listener; a server has at most one of them with TLS, and one without.
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
        """Give the socket what it has not room for later; what was given stays as it is until it is sent."""
        ...

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def has_hung_up(self) -> bool:
        """Whether the client has gone while nothing is read from it: `Session.closed` is not called then."""
        ...

    def close(self) -> None:
        """Send what was given, then close."""
        ...


class AcceptedPeer(Peer, Protocol):
    """A connection as its door gets it: with the client's address, and the one that the client connected to.

    `certificate_name` is the name in the certificate that the client has shown and TLS has verified, as
    `base/distinguished_name.py` writes it; None without one.
    """

    client_host: str
    local_host: str
    certificate_name: str | None


class Session(Protocol):
    """A door's side of one connection."""

    def get_buffer(self) -> memoryview:
        """Where the socket shall receive into."""
        ...

    def received(self, count: int) -> None:
        """So many bytes of that buffer have been received."""
        ...

    def peer_is_slow(self, slow: bool) -> None:
        """The client does not take what it is sent (True), or does again."""
        ...

    def closed(self) -> None:
        """The connection has gone."""
        ...

    def finish(self) -> None:
        """Take no more requests; close the connection once every response due has been sent."""
        ...


@dataclass(frozen=True, slots=True)
class DoorContext:
    """What all doors share.  `connection_count` is how many client connections are open."""

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
        """Where it wants to listen."""
        ...

    def advertised(self, listener: DoorListener, port: int) -> Endpoint:
        """The address that clients of `listener`, which got `port`, are to connect to."""
        ...

    def open(self, context: DoorContext) -> None:
        """Connections follow."""
        ...

    def connected(self, listener: DoorListener, peer: AcceptedPeer, connection_id: int) -> Session: ...

    def declare_metrics(self, metrics: Metrics) -> None:
        """Add numbers of its own to `/metrics`; by default none."""
        return

    def close(self) -> None:
        """Let go of what is left when all connections have ended; by default nothing is."""
        return
