"""How many messages and bytes may pass in a period: Pulsar's rates of topics, of subscriptions and of replicators.

Everything that has passed counts; the sender waits afterwards.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final, Generic, Protocol, TypeVar

from magnetar.base.clock import Clock
from magnetar.broker.quotas.bucket import Bucket
from magnetar.broker.quotas.model import Rate
from magnetar.ledger.entry import Entry

KEPT_MAX: Final = 10_000  # the one asked for longest ago gives way: it has mostly filled up again


class RateLimit:
    """What is left of a rate.  A period's worth may pass at once, or `burst_s` seconds' worth."""

    __slots__ = ("_bytes", "_clock", "_messages", "rate")

    def __init__(self, rate: Rate, clock: Clock, burst_s: float | None = None) -> None:
        self.rate = rate
        self._clock = clock
        now_s, period_s = clock.monotonic(), rate.period_s
        burst_s = period_s if burst_s is None else burst_s
        self._messages = Bucket(rate.messages / period_s, burst_s, now_s) if rate.messages else None
        self._bytes = Bucket(rate.bytes / period_s, burst_s, now_s) if rate.bytes else None

    def used(self, messages: int, size: int) -> None:
        """This much has passed."""
        now_s = self._clock.monotonic()
        if self._messages is not None:
            self._messages.use(messages, now_s)
        if self._bytes is not None:
            self._bytes.use(size, now_s)

    def fitting(self, entries: Sequence[Entry]) -> int:
        """How many of these may pass now: whole ones, so the last one may exceed what is left."""
        now_s = self._clock.monotonic()
        messages = inf if self._messages is None else self._messages.left(now_s)
        size = inf if self._bytes is None else self._bytes.left(now_s)
        for count, entry in enumerate(entries):
            if messages < 1 or size <= 0:
                return count
            messages -= entry.message_count
            size -= len(entry.payload)
        return len(entries)

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


class KeptLimits(Generic[R, L]):
    """Limits that outlive the readers whom they limit: a reader that comes back finds what is still owed."""

    def __init__(self, make: Callable[[R, Clock], L], clock: Clock) -> None:
        self._make = make
        self._clock = clock
        self._kept: OrderedDict[Hashable, L] = OrderedDict()

    def kept(self, key: Hashable) -> L | None:
        """The limit of `key` as it is, at whatever rate."""
        return self._kept.get(key)

    def at(self, key: Hashable, rate: R | None) -> L | None:
        """The limit of `key` at this rate, as `at_rate`."""
        limit = at_rate(rate, self._kept.pop(key, None), self._make, self._clock)
        if limit is not None:
            self._kept[key] = limit
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return limit
