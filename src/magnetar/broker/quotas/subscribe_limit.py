"""How often one consumer may subscribe to one partition in a period: Pulsar's subscribe rates.

Periods follow each other; each begins with the first consumer that comes after the previous one has ended.
"""

from collections.abc import Hashable
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.quotas.model import SubscribeRate

CONSUMERS_MAX: Final = 10_000  # counted in one period; the one that came first gives way


class SubscribeLimit:
    """See the module's text."""

    __slots__ = ("_clock", "_counts", "_ends_s", "rate")

    def __init__(self, rate: SubscribeRate, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._ends_s = 0.0
        self._counts: dict[Hashable, int] = {}

    def admit(self, consumer: Hashable) -> bool:
        """Whether the consumer may subscribe once more; if so, that counts."""
        now_s, counts = self._clock.monotonic(), self._counts
        if now_s >= self._ends_s:
            counts.clear()
            self._ends_s = now_s + self.rate.period_s
        count = counts.get(consumer, 0)
        if count >= self.rate.times:
            return False
        if not count and len(counts) >= CONSUMERS_MAX:
            del counts[next(iter(counts))]
        counts[consumer] = count + 1
        return True
