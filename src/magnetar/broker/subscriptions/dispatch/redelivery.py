"""Units that wait for their turn before everything new, in the order of the log.

Taking and putting cost the logarithm of what waits.  A unit that is acknowledged meanwhile stays in its place until it
comes to the front.  There are never more of such units than of the others.
"""

from heapq import heapify, heappop, heappush

from magnetar.broker.subscriptions.dispatch.model import Place, Unit

STALE_MIN = 64


class WaitingUnits:
    """A queue of waiting units by their order; the owner says when one was acknowledged in it."""

    __slots__ = ("_heap", "_stale")

    def __init__(self) -> None:
        self._heap: list[tuple[int, Unit]] = []
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap) - self._stale

    def clear(self) -> None:
        self._heap.clear()
        self._stale = 0

    def put(self, unit: Unit) -> None:
        heappush(self._heap, (unit.order, unit))

    def first(self) -> Unit | None:
        heap = self._heap
        while heap:
            unit = heap[0][1]
            if unit.place is not Place.DONE:
                return unit
            heappop(heap)
            self._stale -= 1
        return None

    def take(self) -> Unit | None:
        unit = self.first()
        if unit is not None:
            heappop(self._heap)
        return unit

    def forget_one(self) -> None:
        """One of the units here is done."""
        self._stale += 1
        if self._stale > STALE_MIN and 2 * self._stale > len(self._heap):
            self._heap = [pair for pair in self._heap if pair[1].place is not Place.DONE]
            heapify(self._heap)
            self._stale = 0
