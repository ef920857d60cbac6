"""The Pulsar protocol of one broker: what its sessions share."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar import __version__
from magnetar.base import randomness
from magnetar.base.arena import Arena
from magnetar.base.lane import Lane
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.rare_line import RareLine
from magnetar.base.tasks import Tasks
from magnetar.base.turn_end import TurnEnd
from magnetar.broker.cluster.model import PulsarEndpoints
from magnetar.broker.usecases.cases import UseCases
from magnetar.protocols.door import Session
from magnetar.protocols.intake import FramedTraffic
from magnetar.protocols.pulsar.login_watch import LoginWatch
from magnetar.protocols.pulsar.registry import Command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

log = logging.getLogger(__name__)

MEMORY_BYTES_MAX: Final = 1 << 30  # of the budget, unless the settings say otherwise


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """Pulsar's `maxMessageSize` (bytes) and `keepAliveIntervalSeconds`.

    `endpoints` are the addresses in answers to look-ups, and `bound` has the advertised listener of each listener that
    belongs to one.  `refresh_check_s` is Pulsar's
    `authenticationRefreshCheckSeconds`: how often the server checks for expired logins.  `connections_max` and
    `connections_per_host_max` are `brokerMaxConnections` and `brokerMaxConnectionsPerIp`; 0: any number.
    """

    endpoints: PulsarEndpoints
    bound: Mapping[str, str] = field(default_factory=dict)
    message_bytes_max: int = 5 << 20
    keep_alive_s: float = 30.0
    refresh_check_s: float = 60.0
    connections_max: int = 0
    connections_per_host_max: int = 0


class PulsarService(FramedTraffic):
    """See the module's text."""

    def __init__(
        self,
        cases: UseCases,
        arena: Arena,
        settings: PulsarSettings,
        commands: "Mapping[BaseCommand.Type, Command]",
        memory: MemoryBudget | None = None,
        turn_end: TurnEnd | None = None,
    ) -> None:
        memory = memory or MemoryBudget(MEMORY_BYTES_MAX, cases.clock)
        super().__init__(memory, cases.clock, arena, turn_end or TurnEnd())
        self.cases = cases
        self.clock = cases.clock
        self.settings = settings
        self.server_version = f"Magnetar {__version__}"
        self.commands = commands
        self.sessions: set[Session] = set()
        self._counts: Counter[str] = Counter()  # sessions by the host of their clients
        self.login_watch = LoginWatch(self.clock, settings.refresh_check_s)
        cases.logins.hear_withdrawals(self.login_watch.look)
        self.strangers = RareLine(log, self.clock)
        self.lane = Lane()  # for answers with very many names
        self.tasks = Tasks(log)  # commands at work, which outlive their connections
        self.command_counts: Counter[int] = Counter()
        # Producer names that the broker generates must differ from those of every earlier process, because
        # deduplication uses names.
        self._name_prefix = f"magnetar-{randomness.hex_token(4)}"
        self._names_given = 0

    def opened(self, session: Session, client_host: str) -> None:
        self.sessions.add(session)
        self._counts[client_host] += 1

    def closed(self, session: Session, client_host: str) -> None:
        """Count off a session that was opened; it must be called once."""
        self.sessions.discard(session)
        self.cases.logins.give_place(session)
        self._counts[client_host] -= 1
        if not self._counts[client_host]:
            del self._counts[client_host]

    def crowd(self, client_host: str) -> str | None:
        """The reason why the latest session, of this host, exceeds a limit; None if it does not."""
        settings = self.settings
        if 0 < settings.connections_max < len(self.sessions):
            return "Reached the maximum number of connections"
        if 0 < settings.connections_per_host_max < self._counts[client_host]:
            return f"Reached the maximum number of connections on address {client_host}"
        return None

    def generate_producer_name(self) -> str:
        """A name that no other producer has or ever had."""
        self._names_given += 1
        return f"{self._name_prefix}-{self._names_given}"
