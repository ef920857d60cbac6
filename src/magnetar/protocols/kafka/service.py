"""The Kafka protocol of one broker: what its sessions share."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from magnetar.base.arena import Arena
from magnetar.base.memory_budget import MemoryBudget
from magnetar.ledger.entry import EntryKind
from magnetar.protocols.kafka.fetch_sessions import FetchSessions
from magnetar.protocols.kafka.handlers import api_versions
from magnetar.protocols.kafka.large import LargeMessages
from magnetar.protocols.kafka.peer import Peer
from magnetar.protocols.kafka.registry import Deferred, load_apis
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.wire.framing import SCRATCH_BYTES

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.cluster.nodes import Node

MEMORY_BYTES_MAX: Final = 1 << 30  # of the budget, where nobody says otherwise
FETCHES_ANSWERED_AT_ONCE: Final = 4
FETCHES_ANSWERED_EVERY_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Kafka's `socket.request.max.bytes`, `fetch.max.bytes`, `max.incremental.fetch.session.cache.slots`."""

    request_bytes_max: int = 100 << 20
    fetch_bytes_max: int = 55 << 20
    fetch_sessions_max: int = 1000


class KafkaService:
    """Makes a `KafkaSession` for each connection."""

    def __init__(
        self, broker: "Broker", arena: Arena, settings: KafkaSettings, memory: MemoryBudget | None = None
    ) -> None:
        self.broker = broker
        self.arena = arena
        self.settings = settings
        self.memory = memory or MemoryBudget(MEMORY_BYTES_MAX, broker.clock)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.fetch_sessions = FetchSessions(broker.clock, settings.fetch_sessions_max)
        self.apis = load_apis()
        self.large = LargeMessages()
        self.flexible_since = {
            api.key: api.flexible_since for api in self.apis.values() if api.flexible_since is not None
        }
        self.queued_bytes = 0  # unanswered requests of all sessions
        self.tasks: set[asyncio.Task[None]] = set()  # requests at work; they outlive their connections
        self.fetches_waiting: dict[Deferred, None] = {}  # the one that has waited longest first
        self._answers_more_fetches = False
        self.request_counts: Counter[int] = Counter()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.call_soon: Callable[..., Any] = asyncio.get_running_loop().call_soon
        api_versions.publish(self.apis)

    def answer_waiting_fetches(self) -> None:
        """Memory is short: fetches that wait are answered with what there is, and hold no memory for that."""
        for deferred in list(islice(self.fetches_waiting, FETCHES_ANSWERED_AT_ONCE)):
            assert deferred.hurry is not None
            deferred.hurry()
        # Those that have waited longest may be small ones; nobody else asks while no request is handled.
        if self.fetches_waiting and not self._answers_more_fetches:
            self._answers_more_fetches = True
            self.broker.clock.call_later(FETCHES_ANSWERED_EVERY_S, self._answer_more_fetches)

    def _answer_more_fetches(self) -> None:
        self._answers_more_fetches = False
        if self.memory.is_over:
            self.answer_waiting_fetches()

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
