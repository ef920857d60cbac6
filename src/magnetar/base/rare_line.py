"""A line of the log that clients can cause any number of times, and that the server writes once in a while."""

import logging
from typing import Final

from magnetar.base.clock import Clock

SAID_EVERY_S: Final = 10.0


class RareLine:
    """See the module's text."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._said_s = -SAID_EVERY_S
        self._unsaid = 0

    def warn(self, sentence: str, what_others_did: str) -> None:
        """Log `sentence` and how many more there were since the last one: "3 more failed since this was last said"."""
        now_s = self._clock.monotonic()
        if now_s - self._said_s < SAID_EVERY_S:
            self._unsaid += 1
            return
        others = f"; {self._unsaid} more {what_others_did} since this was last said" if self._unsaid else ""
        self._log.warning("%s%s", sentence, others)
        self._said_s, self._unsaid = now_s, 0
