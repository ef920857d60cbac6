"""When logins stop to count before their end, so that doors look at their connections at once.

A withdrawal names no login: each connection can ask whether its own still counts (`Authenticated.still_holds`).
"""

from collections.abc import Callable


class Withdrawals:
    """Those of all pipelines, of all functions, of all delegation tokens, or of all users of SCRAM."""

    def __init__(self) -> None:
        self._heard: list[Callable[[], None]] = []

    def hear(self, callback: Callable[[], None]) -> None:
        """Call this after each withdrawal, for as long as the broker runs."""
        self._heard.append(callback)

    def happened(self) -> None:
        """A token may have been withdrawn, or a user deleted."""
        for callback in self._heard:
            callback()
