"""A cache of the steps with which readers began, for other readers that begin at the same place.

Several readers often begin at one place.  Some are consumers that replay a topic together.  A client may also ask again
from where it was, after its request got only one batch because memory was short.  And a look-up is followed by a read
of what it has found.  The first reader reads the disk.  Readers that come while it reads wait for it; later ones find
the step here, until newer steps replace it.
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
    """The entry id after the last one."""
    cost: int
    loading: asyncio.Future[Chunk]


class FirstSteps:
    """At most `STEPS_MAX` steps that keep at most `bytes_max` bytes together, but at least one step."""

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
        """The step that begins where `stretch` begins and holds `entry_id`: a cached one, or else the result of
        `load`, which keeps `cost` bytes.

        Raises what `load` raises, to all readers that wait for it; the next reader tries again.
        """
        key = (ledger_id, stretch.first)
        begun = self._begun.get(key)
        if begun is None or entry_id >= begun.end:
            begun = _Begun(stretch.end, cost, load(stretch))
            self._begun.put(key, begun)
            begun.loading.add_done_callback(partial(self._check, key))
        else:
            self._begun.use(key)
        # Cancelling one reader does not cancel the step, because others may wait for it.
        return await asyncio.shield(begun.loading)

    def forget(self, ledger_id: int) -> None:
        """Forget the steps of a deleted ledger."""
        self._begun.forget(ledger_id)

    def clear(self) -> None:
        self._begun.clear()

    def _check(self, key: tuple[int, int], loaded: asyncio.Future[Chunk]) -> None:
        """Drop a step that failed or is damaged: the next reader reads the disk itself."""
        if loaded.cancelled() or loaded.exception() is not None or _is_damaged(loaded.result()):
            begun = self._begun.get(key)
            if begun is not None and begun.loading is loaded:
                self._begun.pop(key)


def _is_damaged(chunk: Chunk) -> bool:
    return any(isinstance(entry, Damaged) for entry in chunk.entries)
