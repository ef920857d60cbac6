"""How much a fetch may read from partitions with a dispatch rate (`DispatchTurns`).

A partition whose rate allows nothing now counts as one without new records: the fetch waits for its turn there, and
for records elsewhere.  The client does not get a throttle time (KIP-219), because that would delay all other reads of
its connection.
"""

from collections.abc import Callable, Sequence
from typing import Final

from magnetar.broker.usecases.handles import DispatchTurns, ReadablePartition
from magnetar.ledger.entry import Entry


class FetchPace:
    """See the module's text.  All fetches of a connection take turns as one reader."""

    __slots__ = ("_connection_id", "_given", "_held")

    def __init__(self, connection_id: int = -1) -> None:
        self._connection_id = connection_id
        self._held: dict[DispatchTurns, None] = {}  # not a list, because each partition is looked up in it
        self._given: list[tuple[DispatchTurns, int, int, bool]] = []

    def holds(self, partition: ReadablePartition) -> bool:
        """Whether the partition's rate allows nothing now."""
        turns = partition.dispatch_limit
        if turns is None:
            return False
        if turns.admits(self._connection_id):
            self._held.pop(turns, None)  # it was held when the fetch looked the last time
            return False
        self._held[turns] = None
        return True

    def is_held(self, partition: ReadablePartition) -> bool:
        """The last result of `holds` for the partition."""
        return bool(self._held) and partition.dispatch_limit in self._held

    def gives(self, partition: ReadablePartition, entries: Sequence[Entry], size: int) -> None:
        """Note that the fetch has found these entries, `size` bytes of them, in the partition."""
        turns = partition.dispatch_limit
        if turns is not None:
            end_offset = entries[-1].last_offset + 1
            is_all = end_offset >= partition.log.high_watermark
            self._given.append((turns, end_offset - entries[0].base_offset, size, is_all))

    def sent(self) -> None:
        """Count what was found, because it is sent."""
        for turns, messages, size, is_all in self._given:
            turns.used(messages, size)
            if is_all:
                turns.pass_turn(self._connection_id)

    def wait(self, over: Callable[[], None]) -> None:
        """Have `over` called when the turn of a held partition comes."""
        for turns in self._held:
            turns.wait(self._connection_id, over)

    def keep(self) -> None:
        """Keep the turns of held partitions for the connection's next fetch, because this one is answered without
        them.

        Otherwise a fetch that does not wait, or always finds enough elsewhere, would never get records of a partition
        at which other readers wait.
        """
        self.wait(_nothing)

    def stop(self) -> None:
        """Stop waiting for turns."""
        for turns in self._held:
            turns.leave(self._connection_id)


def _nothing() -> None:
    """Does nothing, because the connection asks again by itself."""


UNPACED: Final = FetchPace()
"""The pace of fetches from partitions without a rate."""
