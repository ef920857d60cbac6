"""How fast one replicator may take the messages of one partition: Pulsar's replicator dispatch rates.

A replicator works in batches.  Before each it asks how far it may read, and takes all of that.  A period's worth may go
at once.  While more records wait for the replicator, it also gets with the next batch what the rate allowed during this
one, up to `BATCH_S_MAX` seconds' worth.  A batch may last longer than a period, and the replicator would otherwise
never reach the rate.  A replicator that had everything begins with a period's worth again.

A grant stays valid: a replicator may ask for the same batch again, because it did not get the answer or was started
anew.  It then gets the same answer.
"""

from collections.abc import Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.quotas.model import Rate
from magnetar.broker.quotas.rate_limit import RateLimit
from magnetar.ledger.entry import Entry

BATCH_S_MAX: Final = 60


class ReplicatorLimit(RateLimit):
    """See the module's text."""

    __slots__ = ("_granted", "_is_behind", "is_holding")

    def __init__(self, rate: Rate, clock: Clock) -> None:
        super().__init__(rate, clock, max(rate.period_s, BATCH_S_MAX))
        self._is_behind = False
        self.is_holding = False  # the rate made the last batch end before messages that are there
        self._granted: tuple[int, int] | None = None

    def granted_from(self, begin: int) -> int | None:
        """The end of the batch that was granted last, if it began at this offset and was not empty."""
        return self._granted[1] if self._granted is not None and self._granted[0] == begin else None

    def begin(self) -> None:
        """Another batch begins."""
        if not self._is_behind:
            now_s = self._clock.monotonic()
            for one in (self._messages, self._bytes):
                if one is not None:
                    one.keep_at_most(self.rate.period_s, now_s)

    def take(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The first ones of these, as many as may go with the batch.  They count."""
        fitting = entries[: self.fitting(entries)]
        self.used(sum(one.message_count for one in fitting), sum(len(one.payload) for one in fitting))
        return fitting

    def grant(self, begin: int, end: int, *, is_behind: bool, is_holding: bool) -> None:
        """The batch goes from `begin` (inclusive) to `end` (exclusive); `is_behind`: more waits; `is_holding`: because
        of the rate.
        """
        self.is_holding = is_holding
        self._granted = (begin, end) if begin < end else None
        self._is_behind = is_behind
