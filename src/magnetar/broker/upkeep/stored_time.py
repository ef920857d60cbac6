"""The time by which data expires, kept over restarts: loaded at the start, checked often, stored rarely.

`base/expiry_time.py` says why it is checked, and what is stored.
"""

import logging
from typing import Final

from magnetar.base.errors import MetadataError
from magnetar.base.expiry_time import PATH
from magnetar.base.times import Times
from magnetar.metadata.store import MetadataStore

log = logging.getLogger(__name__)

_LOOK_INTERVAL_S: Final = 10.0
_STORE_INTERVAL_S: Final = 600.0  # rarely, because it costs a synced write


class StoredTime:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore, times: Times) -> None:
        self._metadata = metadata
        self._clock = times.clock
        self._expiry_time = times.expiry
        self._upkeep = times.upkeep
        self._stored_s = float("-inf")

    async def load(self) -> None:
        """Continue from the last process's time.  Raises MetadataError."""
        stored = await self._metadata.get(PATH)
        if stored is not None:
            self._expiry_time.restore(stored.value)

    def start(self) -> None:
        """Begin to check for jumps of the clock often, and to store the time of expiry now and then."""
        self._upkeep.every(_LOOK_INTERVAL_S, "the time", self._look)

    async def store(self) -> None:
        """Store the present time; a failure is logged in one line."""
        self._expiry_time.now_ms()
        try:
            await self._metadata.put(PATH, self._expiry_time.encode())
        except MetadataError as error:
            log.warning("the server could not store the time: %s", error)

    async def _look(self) -> None:
        self._expiry_time.now_ms()
        now_s = self._clock.monotonic()
        if now_s - self._stored_s >= _STORE_INTERVAL_S:
            self._stored_s = now_s
            await self.store()
