"""The Pulsar protocol of one broker: what its sessions share."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from magnetar import __version__
from magnetar.base.arena import Arena
from magnetar.base.memory_budget import MemoryBudget
from magnetar.broker.cluster.nodes import Endpoint
from magnetar.ledger.entry import EntryKind
from magnetar.protocols.pulsar.registry import load_commands
from magnetar.protocols.pulsar.session import Peer, PulsarSession
from magnetar.wire.framing import SCRATCH_BYTES

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

MEMORY_BYTES_MAX: Final = 1 << 30  # of the budget, where nobody says otherwise


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """Pulsar's `maxMessageSize` (bytes) and `keepAliveIntervalSeconds`.

    `endpoint` is where clients are told to connect, whether they ask for the listener of `listener_name` or for none;
    an empty host is the address that the client connected to.
    """

    endpoint: Endpoint
    listener_name: str = "pulsar"
    message_bytes_max: int = 5 << 20
    keep_alive_s: float = 30.0


class PulsarService:
    """Makes a `PulsarSession` for each connection."""

    def __init__(
        self, broker: "Broker", arena: Arena, settings: PulsarSettings, memory: MemoryBudget | None = None
    ) -> None:
        self.broker = broker
        self.clock = broker.clock
        self.arena = arena
        self.settings = settings
        self.memory = memory or MemoryBudget(MEMORY_BYTES_MAX, broker.clock)
        self.server_version = f"Magnetar {__version__}"
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.commands = load_commands()
        self.sessions: set[PulsarSession] = set()
        self.queued_bytes = 0  # unanswered SENDs of all sessions
        self.tasks: set[asyncio.Task[None]] = set()  # commands at work; they outlive their connections
        self.command_counts: Counter[int] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.call_soon: Callable[..., Any] = asyncio.get_running_loop().call_soon
        # Names that the broker gives to producers differ from those of every earlier process: deduplication goes by
        # them.
        self._name_prefix = f"magnetar-{secrets.token_hex(4)}"
        self._names_given = 0

    def generate_producer_name(self) -> str:
        """A name that no other producer has or had."""
        self._names_given += 1
        return f"{self._name_prefix}-{self._names_given}"

    def connected(self, peer: Peer, connection_id: int, client_host: str, local_host: str) -> PulsarSession:
        session = PulsarSession(self, peer, connection_id, client_host, local_host)
        self.sessions.add(session)
        self.broker.interop.client_connected(EntryKind.PULSAR)
        return session
