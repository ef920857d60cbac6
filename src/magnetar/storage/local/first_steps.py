"""The steps that readers began with, for other readers that begin at the same place.

Consumers that replay a topic begin together; a request that got one batch because memory was short comes back to where
it was; a lookup is followed by a read of what it found.  The first of them reads the disk.  Those that come while it
reads wait for it, and those that come later find the step, until newer ones take its place.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from magnetar.storage.local.kept import Kept
from magnetar.storage.local.segment import Chunk, Damaged, Stretch

STEPS_MAX: Final = 32


class _Begun(NamedTuple):
    end: int
    """The entry id behind the last."""
    cost: int
    loading: asyncio.Future[Chunk]


class FirstSteps:
    """At most `STEPS_MAX` steps, and one at least, of `bytes_max` together."""

    def __init__(self, bytes_max: int) -> None:
        self._begun: Kept[_Begun] = Kept(STEPS_MAX, bytes_max)

    async def load(
        self,
        ledger_id: int,
        entry_id: int,
        stretch: Stretch,
        cost: int,
        load: Callable[[Stretch], asyncio.Future[Chunk]],
    ) -> Chunk:
        """The step that begins where `stretch` does and holds `entry_id`: one that is here, or else what `load`
        reads, which keeps `cost` bytes.

        Raises what `load` raises, to all who wait for it; the next one tries again.
        """
        key = (ledger_id, stretch.first)
        begun = self._begun.get(key)
        if begun is None or entry_id >= begun.end:
            begun = _Begun(stretch.end, cost, load(stretch))
            self._begun.put(key, begun)
            begun.loading.add_done_callback(partial(self._check, key))
        else:
            self._begun.use(key)
        # A reader that is cancelled leaves the step to the others.
        return await asyncio.shield(begun.loading)

    def forget(self, ledger_id: int) -> None:
        """The ledger is deleted."""
        self._begun.forget(ledger_id)

    def clear(self) -> None:
        self._begun.clear()

    def _check(self, key: tuple[int, int], loaded: asyncio.Future[Chunk]) -> None:
        """What failed or is damaged is not kept: the next reader asks the disk itself."""
        if loaded.cancelled() or loaded.exception() is not None or _is_damaged(loaded.result()):
            begun = self._begun.get(key)
            if begun is not None and begun.loading is loaded:
                self._begun.pop(key)


def _is_damaged(chunk: Chunk) -> bool:
    return any(isinstance(entry, Damaged) for entry in chunk.entries)
