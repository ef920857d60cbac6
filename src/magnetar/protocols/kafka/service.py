"""The Kafka protocol of one broker: what its sessions share."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magnetar.base.arena import Arena
from magnetar.ledger.entry import EntryKind
from magnetar.protocols.kafka.fetch_sessions import FetchSessions
from magnetar.protocols.kafka.handlers import api_versions
from magnetar.protocols.kafka.registry import load_apis
from magnetar.protocols.kafka.session import KafkaSession, Peer
from magnetar.wire.framing import SCRATCH_BYTES

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.nodes import Node


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Sizes in bytes; `queued_bytes_max` bounds unanswered requests over all connections.

    Kafka's `socket.request.max.bytes`, `fetch.max.bytes`, `max.incremental.fetch.session.cache.slots`.
    """

    request_bytes_max: int = 100 << 20
    queued_bytes_max: int = 1 << 30
    fetch_bytes_max: int = 55 << 20
    fetch_sessions_max: int = 1000


class KafkaService:
    """Makes a `KafkaSession` for each connection."""

    def __init__(self, broker: "Broker", arena: Arena, settings: KafkaSettings) -> None:
        self.broker = broker
        self.arena = arena
        self.settings = settings
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.fetch_sessions = FetchSessions(broker.clock, settings.fetch_sessions_max)
        self.apis = load_apis()
        self.flexible_since = {
            api.key: api.flexible_since for api in self.apis.values() if api.flexible_since is not None
        }
        self.queued_bytes = 0  # unanswered requests of all sessions
        self.held_back: set[KafkaSession] = set()  # sessions that read nothing until there is less to answer
        self.tasks: set[asyncio.Task[None]] = set()  # requests at work; they outlive their connections
        self.fetches_waiting = 0
        self.request_counts: Counter[int] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.call_soon: Callable[..., Any] = asyncio.get_running_loop().call_soon
        api_versions.publish(self.apis)

    def unsupported_api_versions(self) -> Any:
        return api_versions.unsupported()

    def connected(
        self,
        peer: Peer,
        node: "Node",
        listener_name: str,
        connection_id: int,
        client_host: str,
        local_host: str,
    ) -> KafkaSession:
        self.broker.interop.client_connected(EntryKind.KAFKA)
        return KafkaSession(self, peer, node, listener_name, connection_id, client_host, local_host)
