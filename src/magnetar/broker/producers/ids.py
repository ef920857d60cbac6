"""Producer ids, each given only once: blocks of 1,000 out of one counter in the metadata store (KIP-730)."""

import asyncio
from typing import Final

from magnetar.base.errors import BadVersion
from magnetar.metadata.store import MUST_NOT_EXIST, MetadataStore

BLOCK_SIZE: Final = 1000
_PATH: Final = "/producer-ids"


class ProducerIds:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def allocate(self) -> int:
        """A producer id that was never given before, even if the server crashed in between.

        Raises:
            MetadataError: the metadata store cannot be written.
        """
        if self._next == self._end:
            async with self._lock:
                while self._next == self._end:
                    await self._take_block()
        allocated = self._next
        self._next += 1
        return allocated

    async def _take_block(self) -> None:
        stored = await self._metadata.get(_PATH)
        start, version = (0, MUST_NOT_EXIST) if stored is None else (int(stored.value), stored.version)
        try:
            await self._metadata.put(_PATH, str(start + BLOCK_SIZE).encode(), version)
        except BadVersion:
            return  # another broker took this block: try the next one
        self._next, self._end = start, start + BLOCK_SIZE
