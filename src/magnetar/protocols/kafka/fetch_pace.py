"""What one look of a fetch takes of partitions that have a dispatch rate (`DispatchTurns`).

A partition that may give nothing now is as one in which nothing new has come: the fetch waits for its turn beside what
comes elsewhere.  It is not told to wait (KIP-219), which would hold up all else that its connection reads.
"""

from collections.abc import Callable, Sequence
from typing import Final

from magnetar.broker.usecases.handles import DispatchTurns, ReadablePartition
from magnetar.ledger.entry import Entry


class FetchPace:
    """See the module's text.  A connection's fetches have their turns as one reader."""

    __slots__ = ("_connection_id", "_given", "_held")

    def __init__(self, connection_id: int = -1) -> None:
        self._connection_id = connection_id
        self._held: dict[DispatchTurns, None] = {}  # not a list: each partition is looked for in it
        self._given: list[tuple[DispatchTurns, int, int, bool]] = []

    def holds(self, partition: ReadablePartition) -> bool:
        """Whether the partition may give nothing now."""
        turns = partition.dispatch_limit
        if turns is None:
            return False
        if turns.admits(self._connection_id):
            self._held.pop(turns, None)  # it was held when the fetch looked before
            return False
        self._held[turns] = None
        return True

    def is_held(self, partition: ReadablePartition) -> bool:
        """What `holds` said of it."""
        return bool(self._held) and partition.dispatch_limit in self._held

    def gives(self, partition: ReadablePartition, entries: Sequence[Entry], size: int) -> None:
        """It gives these, `size` bytes of them, unless the fetch gets nothing after all."""
        turns = partition.dispatch_limit
        if turns is not None:
            end_offset = entries[-1].last_offset + 1
            is_all = end_offset >= partition.log.high_watermark
            self._given.append((turns, end_offset - entries[0].base_offset, size, is_all))

    def sent(self) -> None:
        """The fetch gets what was found."""
        for turns, messages, size, is_all in self._given:
            turns.used(messages, size)
            if is_all:
                turns.done(self._connection_id)

    def wait(self, over: Callable[[], None]) -> None:
        """Have `over` called when the turn of one that gives nothing has come."""
        for turns in self._held:
            turns.wait(self._connection_id, over)

    def keep(self) -> None:
        """The fetch is answered without these: the next one of its connection has their turns when they come.

        Otherwise one that does not wait, or finds enough elsewhere each time, would never get anything of a partition
        at which others wait.
        """
        self.wait(_nothing)

    def stop(self) -> None:
        """Wait no longer."""
        for turns in self._held:
            turns.leave(self._connection_id)


def _nothing() -> None:
    """The connection asks by itself."""


UNPACED: Final = FetchPace()
"""That of fetches that read nothing with a rate."""
