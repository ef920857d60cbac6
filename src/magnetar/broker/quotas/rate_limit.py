"""How many messages and bytes may pass in a period: Pulsar's rates of topics and of subscriptions.

Everything that has passed counts; the sender waits afterwards.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from magnetar.base.clock import Clock
from magnetar.broker.quotas.bucket import Bucket
from magnetar.broker.quotas.model import Rate


class RateLimit:
    """What is left of a rate.  A period's worth may pass at once."""

    __slots__ = ("_bytes", "_clock", "_messages", "rate")

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        now_s, period_s = clock.monotonic(), rate.period_s
        self._messages = Bucket(rate.messages / period_s, period_s, now_s) if rate.messages else None
        self._bytes = Bucket(rate.bytes / period_s, period_s, now_s) if rate.bytes else None

    def used(self, messages: int, size: int) -> None:
        """This much has passed."""
        now_s = self._clock.monotonic()
        if self._messages is not None:
            self._messages.use(messages, now_s)
        if self._bytes is not None:
            self._bytes.use(size, now_s)

    def owed_s(self) -> float:
        """The seconds until more may pass."""
        now_s = self._clock.monotonic()
        return max(
            (one.owed_s(now_s) for one in (self._messages, self._bytes) if one is not None), default=0.0
        )


class _Limit(Protocol):
    @property
    def rate(self) -> object: ...


R = TypeVar("R")
L = TypeVar("L", bound=_Limit)


def at_rate(rate: R | None, limit: L | None, make: Callable[[R, Clock], L], clock: Clock) -> L | None:
    """A limit at this rate: `limit`, with what was used of it, if the rate is the same; None for no rate."""
    if rate is None:
        return None
    return limit if limit is not None and limit.rate == rate else make(rate, clock)
