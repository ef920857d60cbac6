"""Rates: messages and bytes per second of partitions, producers and consumers.

These objects count since they exist.  A sample every `INTERVAL_S` turns the counts into rates of the last interval,
so no work is added for each message.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from magnetar.base.times import Times

INTERVAL_S: Final = 10.0


class Count(NamedTuple):
    """The totals of one object since it exists."""

    thing: object
    messages: int
    size_bytes: int


class Rate(NamedTuple):
    """Per second."""

    messages: float = 0.0
    size_bytes: float = 0.0


class RateBoard:
    """`counts` returns the totals of all objects that exist now."""

    def __init__(self, times: Times, counts: Callable[[], Iterable[Count]]) -> None:
        self._clock = times.clock
        self._upkeep = times.upkeep
        self._counts = counts
        self._at_s = 0.0
        self._rows: dict[int, tuple[Count, Rate]] = {}  # by id(thing); a row keeps its object alive

    def start(self) -> None:
        self._at_s = self._clock.monotonic()
        # Counts from before the start do not belong to the first interval.
        self._rows = {id(count.thing): (count, Rate()) for count in self._counts()}
        self._upkeep.every(INTERVAL_S, "rates", self._tick)

    def of(self, thing: object) -> Rate:
        row = self._rows.get(id(thing))
        return row[1] if row is not None and row[0].thing is thing else Rate()

    async def _tick(self) -> None:
        self.sample()

    def sample(self) -> None:
        """Compute the rates since the last sample."""
        now_s = self._clock.monotonic()
        seconds = now_s - self._at_s
        if seconds <= 0:
            return
        before, self._rows, self._at_s = self._rows, {}, now_s
        for count in self._counts():
            row = before.get(id(count.thing))
            messages, size_bytes = count.messages, count.size_bytes
            if row is not None and row[0].thing is count.thing:
                messages -= row[0].messages
                size_bytes -= row[0].size_bytes
            self._rows[id(count.thing)] = (count, Rate(messages / seconds, size_bytes / seconds))
