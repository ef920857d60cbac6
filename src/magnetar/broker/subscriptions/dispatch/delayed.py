"""Units whose time has not come (deliver_at_time), for Shared and Key_Shared.

Nothing here is stored: a delayed message is simply not acknowledged, so after a restart it is read, and delayed, again.
Never delivered early, and at most one tick late: the timer goes off at whole ticks, so a million messages of one
second need one wake-up.  (Pulsar by default delivers up to a tick early.)
"""

from heapq import heapify, heappop, heappush

from magnetar.broker.subscriptions.dispatch.model import Place, Unit

TICK_MS = 1000  # delayedDeliveryTickTimeMillis
DUE_AT_ONCE = 1000  # a million may have the same time
STALE_MIN = 64


class DelayedUnits:
    """Delayed units by the time at which they are due."""

    __slots__ = ("_heap", "_stale", "_tick_ms")

    def __init__(self, tick_ms: int = TICK_MS) -> None:
        assert tick_ms > 0
        self._heap: list[tuple[int, int, Unit]] = []
        self._stale = 0
        self._tick_ms = tick_ms

    def __len__(self) -> int:
        return len(self._heap) - self._stale

    def clear(self) -> None:
        self._heap.clear()
        self._stale = 0

    def put(self, unit: Unit) -> None:
        """Keep a unit until its time; what was read of it is let go."""
        unit.place = Place.DELAYED
        unit.payload = None
        heappush(self._heap, (unit.deliver_at_ms, unit.order, unit))

    def due(self, now_ms: int) -> list[Unit]:
        """Take out units whose time has come, the earliest first, and no more than can go out in one turn."""
        heap = self._heap
        units: list[Unit] = []
        while len(units) < DUE_AT_ONCE and heap and (heap[0][0] <= now_ms or heap[0][2].place is Place.DONE):
            unit = heappop(heap)[2]
            if unit.place is Place.DONE:
                self._stale -= 1
            else:
                units.append(unit)
        return units

    @property
    def next_tick_ms(self) -> int | None:
        """The first whole tick at which something is due."""
        if not self._heap:
            return None
        return -(-self._heap[0][0] // self._tick_ms) * self._tick_ms

    def forget_one(self) -> None:
        """One of the units here is done."""
        self._stale += 1
        if self._stale > STALE_MIN and 2 * self._stale > len(self._heap):
            self._heap = [item for item in self._heap if item[2].place is not Place.DONE]
            heapify(self._heap)
            self._stale = 0
