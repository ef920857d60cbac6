"""Writes of the journal that took the disk very long, in the log: once a minute at most."""

import logging
from typing import Final

log = logging.getLogger(__name__)

STALL_S: Final = 1.0
STALL_LOG_S: Final = 60.0


class StallLog:
    """See the module's text; times are of the monotonic clock."""

    def __init__(self, now_s: float) -> None:
        self._quiet_until_s = now_s

    def tell(self, took_s: float, size: int, now_s: float) -> None:
        """A write of `size` bytes took `took_s`, which is `STALL_S` or more."""
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + STALL_LOG_S
            log.warning(
                "the disk took %.1f s for a journal write: bytes=%d, all producers waited", took_s, size
            )
