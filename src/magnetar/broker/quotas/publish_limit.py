"""How fast messages may come into one partition, whoever publishes them: Pulsar's publish rates.

All its producers, of both protocols, share the limit.  What was published stays; who published is held back afterwards.
"""

from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.quotas.bucket import Bucket
from magnetar.broker.quotas.model import PublishRate

_BURST_S: Final = 1


class PublishLimit:
    """See the module's text."""

    __slots__ = ("_bytes", "_clock", "_messages", "rate")

    def __init__(self, rate: PublishRate, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        now_s = clock.monotonic()
        self._messages = Bucket(rate.messages, _BURST_S, now_s) if rate.messages else None
        self._bytes = Bucket(rate.bytes, _BURST_S, now_s) if rate.bytes else None

    def published(self, messages: int, size: int) -> None:
        """So much has come in."""
        now_s = self._clock.monotonic()
        if self._messages is not None:
            self._messages.use(messages, now_s)
        if self._bytes is not None:
            self._bytes.use(size, now_s)

    def owed_s(self) -> float:
        """The seconds until more may come."""
        now_s = self._clock.monotonic()
        return max(
            (one.owed_s(now_s) for one in (self._messages, self._bytes) if one is not None), default=0.0
        )
