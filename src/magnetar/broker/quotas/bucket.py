"""A rate that is kept on average, and may be exceeded for a while."""

from typing import Final

BURST_S: Final = 10  # as Kafka's, which counts the last ten seconds


class Bucket:
    """What is left of a rate: it grows by `rate` a second, up to what comes together in `BURST_S`.

    Below zero something is owed.  Times are of a clock that never jumps.
    """

    __slots__ = ("_at_s", "_left", "rate")

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate
        self._left = rate * BURST_S
        self._at_s = now_s

    def change_rate(self, rate: float) -> None:
        """What was used stays used."""
        self._left += (rate - self.rate) * BURST_S
        self.rate = rate

    def use(self, amount: float, now_s: float) -> float:
        """Use it, whatever is left; the seconds until nothing is owed."""
        self._fill(now_s)
        self._left -= amount
        return max(-self._left, 0.0) / self.rate

    def use_if_left(self, amount: float, now_s: float) -> float:
        """Use it if so much is left, or all that there can be, and return 0; otherwise the seconds until then."""
        self._fill(now_s)
        missing = min(amount, self.rate * BURST_S) - self._left
        if missing > 0:
            return missing / self.rate
        self._left -= amount
        return 0.0

    def _fill(self, now_s: float) -> None:
        self._left = min(self._left + (now_s - self._at_s) * self.rate, self.rate * BURST_S)
        self._at_s = now_s
