"""The Kafka protocol of one broker: what its sessions share."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from magnetar.base.arena import Arena
from magnetar.base.memory_budget import MemoryBudget
from magnetar.base.tasks import Tasks
from magnetar.base.turn_end import TurnEnd
from magnetar.broker.usecases.cases import UseCases
from magnetar.protocols.intake import FramedTraffic
from magnetar.protocols.kafka.fetch_sessions import FetchSessions
from magnetar.protocols.kafka.large import LargeMessages
from magnetar.protocols.kafka.login import LoginService
from magnetar.protocols.kafka.registry import Api, Deferred

log = logging.getLogger(__name__)

MEMORY_BYTES_MAX: Final = 1 << 30  # of the budget, unless the settings say otherwise
FETCHES_ANSWERED_AT_ONCE: Final = 4
FETCHES_ANSWERED_EVERY_S: Final = 0.01
HANG_UPS_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Kafka's `socket.request.max.bytes`, `fetch.max.bytes`, `max.incremental.fetch.session.cache.slots`."""

    request_bytes_max: int = 100 << 20
    fetch_bytes_max: int = 55 << 20
    fetch_sessions_max: int = 1000


class Leavable(Protocol):
    """A session that reads nothing, and so does not notice when its client has gone."""

    def look_for_hang_up(self) -> None: ...


class KafkaService(FramedTraffic):
    """See the module's text."""

    def __init__(
        self,
        cases: UseCases,
        arena: Arena,
        settings: KafkaSettings,
        apis: Mapping[int, Api[Any]],
        memory: MemoryBudget | None = None,
        turn_end: TurnEnd | None = None,
    ) -> None:
        memory = memory or MemoryBudget(MEMORY_BYTES_MAX, cases.clock)
        super().__init__(memory, cases.clock, arena, turn_end or TurnEnd())
        self.cases = cases
        self.settings = settings
        self.fetch_sessions = FetchSessions(cases.clock, settings.fetch_sessions_max)
        self.apis = apis
        self.large = LargeMessages(cases.clock.monotonic)
        self.logins = LoginService(cases.clock, cases.logins)
        self.flexible_since = {
            api.key: api.flexible_since for api in self.apis.values() if api.flexible_since is not None
        }
        self.tasks = Tasks(log)  # requests at work, which outlive their connections
        # Waiting fetches, the oldest first, with the function that checks their rights again.
        self.fetches_waiting: dict[Deferred, Callable[[], None]] = {}
        cases.standing.hear(self._rights_changed)
        self._answers_more_fetches = False
        self.request_counts: Counter[int] = Counter()
        self._sessions: set[Leavable] = set()
        self._looks_for_hang_ups = False

    def opened(self, session: Leavable) -> None:
        """From now on until `closed`, look every second whether the client of a waiting request has gone."""
        self._sessions.add(session)
        self._look_later()

    def closed(self, session: Leavable) -> None:
        self._sessions.discard(session)

    def _look_later(self) -> None:
        if self._sessions and not self._looks_for_hang_ups:
            self._looks_for_hang_ups = True
            self.cases.clock.call_later(HANG_UPS_EVERY_S, self._look_for_hang_ups)

    def _look_for_hang_ups(self) -> None:
        for session in list(self._sessions):
            session.look_for_hang_up()
        self._looks_for_hang_ups = False
        self._look_later()

    def _rights_changed(self) -> None:
        for ask_again in list(self.fetches_waiting.values()):
            ask_again()

    def answer_waiting_fetches(self) -> None:
        """Answer waiting fetches with what there is, because memory is short."""
        for deferred in list(islice(self.fetches_waiting, FETCHES_ANSWERED_AT_ONCE)):
            assert deferred.hurry is not None
            deferred.hurry()
        # The oldest ones may be small.  While sessions handle no requests, only this timer tries again.
        if self.fetches_waiting and not self._answers_more_fetches:
            self._answers_more_fetches = True
            self.cases.clock.call_later(FETCHES_ANSWERED_EVERY_S, self._answer_more_fetches)

    def _answer_more_fetches(self) -> None:
        self._answers_more_fetches = False
        if self.memory.is_over:
            self.answer_waiting_fetches()
