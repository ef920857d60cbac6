"""A rate that is kept on average, and can be exceeded for a while."""


class Bucket:
    """What is left of a rate.  It grows by `rate` per second, up to `burst_s` seconds' worth.

    Below zero something is owed.  Times are of a clock that never jumps.
    """

    __slots__ = ("_at_s", "_burst_s", "_left", "_most", "rate")

    def __init__(self, rate: float, burst_s: float, now_s: float) -> None:
        self.rate = rate
        self._burst_s = burst_s
        self._most = self._left = rate * burst_s
        self._at_s = now_s

    def change_rate(self, rate: float) -> None:
        """What was used stays used at a higher rate.  At a lower rate a client owes nothing for longer than before.
        What it used at a hundred times the rate would otherwise take a hundred times as long to come back, and keep all
        clients out.
        """
        if rate > self.rate:
            self._left += (rate - self.rate) * self._burst_s
        else:
            self._left *= rate / self.rate
        self.rate = rate
        self._most = rate * self._burst_s

    def keep_at_most(self, seconds: float, now_s: float) -> None:
        """Of what is left keep at most so many seconds' worth."""
        self._left = min(self.left(now_s), self.rate * seconds)

    # Each of these is asked once or more for every request, and so calls nothing.

    def use(self, amount: float, now_s: float) -> float:
        """Use `amount`, whatever is left, and return the seconds until nothing is owed."""
        left = self._left + (now_s - self._at_s) * self.rate
        if left > self._most:
            left = self._most
        left -= amount
        self._left = left
        self._at_s = now_s
        return 0.0 if left >= 0 else -left / self.rate

    def left(self, now_s: float) -> float:
        """Return how much may be used; below zero, so much is owed."""
        left = self._left + (now_s - self._at_s) * self.rate
        if left > self._most:
            left = self._most
        self._left = left
        self._at_s = now_s
        return left

    def owed_s(self, now_s: float) -> float:
        """Return the seconds until nothing is owed."""
        left = self.left(now_s)
        return 0.0 if left >= 0 else -left / self.rate

    def use_unless_owing(self, amount: float, now_s: float) -> float:
        """Use `amount`, whatever is left, and return 0.  While something is owed, use nothing and return the seconds
        until nothing is owed.

        The size of `amount` does not matter: a request for much must not wait for a moment when others ask for nothing.
        """
        owed_s = self.owed_s(now_s)
        if not owed_s:
            self._left -= amount
        return owed_s
