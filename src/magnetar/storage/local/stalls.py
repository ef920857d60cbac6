"""Logs writes of the journal for which the disk took very long: at most one line a minute."""

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
        """Log a write of `size` bytes that took `took_s`, which is at least `STALL_S`."""
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + STALL_LOG_S
            log.warning(
                "the disk took %.1f s for a journal write: bytes=%d, all producers waited", took_s, size
            )
