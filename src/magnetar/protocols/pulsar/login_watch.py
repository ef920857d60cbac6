"""Checks whether logins have expired or were withdrawn: one timer for all sessions whose logins end."""

from typing import Protocol

from magnetar.base.clock import Clock, TimerHandle


class Expiring(Protocol):
    """A session whose login ends at some time."""

    def check_login(self) -> None:
        """If the login has expired, ask the client for new credentials, or close the connection; if the server has
        withdrawn it, close the connection.
        """
        ...


class LoginWatch:
    """Checks its sessions every `interval_s`, while there are any."""

    def __init__(self, clock: Clock, interval_s: float) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._sessions: set[Expiring] = set()
        self._timer: TimerHandle | None = None

    def add(self, session: Expiring) -> None:
        self._sessions.add(session)
        if self._timer is None:
            self._timer = self._clock.call_later(self._interval_s, self._tick)

    def discard(self, session: Expiring) -> None:
        self._sessions.discard(session)
        if not self._sessions and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = self._clock.call_later(self._interval_s, self._tick)
        self.look()

    def look(self) -> None:
        """Check all of them now."""
        for session in list(self._sessions):
            session.check_login()
