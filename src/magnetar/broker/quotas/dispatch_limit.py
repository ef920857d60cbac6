"""How fast messages may go out, of one partition or to one subscription: Pulsar's dispatch rates.

Whoever is to hand messages out asks `admits` before it reads them, takes as many as are `fitting`, and says what it
has `used`.  Where it is not admitted it may `wait`, and is called when its turn has come: that it goes on then is up to
it.  Of those that wait the one goes first that had its turn longest ago.  While some wait, or one has its turn, others
are not admitted: so no reader of a partition starves beside a faster one.

A partition that has a limit of its own and shares another one, with a resource group's topics, has both `Together`.

Readers are known by values that stay the same when they come again (the name of a subscription, the number of a
connection).  There is a timer while some wait or one has its turn, and no other.
"""

from collections.abc import Callable, Hashable, Sequence
from math import inf
from typing import Final, TypeAlias

from magnetar.base.clock import Clock, TimerHandle
from magnetar.broker.quotas.model import Rate
from magnetar.broker.quotas.rate_limit import RateLimit
from magnetar.ledger.entry import Entry

# A turn lasts so long, or until its reader waits again or is done: what may go out meanwhile goes together.
TURN_S: Final = 0.02
_READERS_MAX: Final = 10_000  # of which it is known when they had their turn


class DispatchLimit(RateLimit):
    """See the module's text."""

    __slots__ = ("_served", "_timer", "_turn", "_waiting")

    def __init__(self, rate: Rate, clock: Clock) -> None:
        super().__init__(rate, clock)
        self._waiting: dict[Hashable, Callable[[], None]] = {}
        self._served: dict[Hashable, None] = {}  # those that had a turn, the last one at the end
        self._turn: Hashable = None
        self._timer: TimerHandle | None = None

    def admits(self, reader: Hashable) -> bool:
        """Whether the reader may take something now."""
        if self._turn != reader and (self._waiting or self._turn is not None):
            return False
        return not self.owed_s()

    def fitting(self, entries: Sequence[Entry]) -> int:
        """How many of these the reader may take: whole ones, so that the last one may be more than is left."""
        now_s = self._clock.monotonic()
        messages = inf if self._messages is None else self._messages.left(now_s)
        size = inf if self._bytes is None else self._bytes.left(now_s)
        for count, entry in enumerate(entries):
            if count and (messages <= 0 or size <= 0):
                return count
            messages -= entry.message_count
            size -= len(entry.payload)
        return len(entries)

    def wait(self, reader: Hashable, go_on: Callable[[], None]) -> None:
        """Have `go_on` called, once, when the reader's turn has come, or the limit holds no longer."""
        if self._turn == reader:
            self._turn = None
            self._stop_timer()
        self._waiting[reader] = go_on
        if self._timer is None:
            self._set_timer()

    def done(self, reader: Hashable) -> None:
        """The reader has nothing to take now; if it is its turn, that of the next one comes as soon as nothing is owed.

        Readers that want little, and are many, would otherwise wait for each other below the rate, and never catch up.
        """
        if self._turn == reader:
            self._turn = None
            self._stop_timer()
            if self._waiting:
                self._timer = self._clock.call_later(self.owed_s(), self._next_turn)

    def leave(self, reader: Hashable) -> None:
        """The reader waits no longer."""
        self._waiting.pop(reader, None)
        if not self._waiting and self._turn is None:
            self._stop_timer()

    def close(self) -> None:
        """It holds no longer: all that wait go on, by another limit or by none."""
        self._stop_timer()
        waiting, self._waiting = self._waiting, {}
        for go_on in waiting.values():
            go_on()

    def _set_timer(self) -> None:
        self._timer = self._clock.call_later(max(self.owed_s(), TURN_S), self._next_turn)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_turn(self) -> None:
        self._timer = self._turn = None
        if not self._waiting:
            return
        if self.owed_s():
            self._set_timer()
            return
        go_on = self._waiting.pop(self._begin_turn())
        self._set_timer()
        go_on()

    def _begin_turn(self) -> Hashable:
        """Of one that waits; which one."""
        reader = self._turn = self._longest_ago()
        self._served.pop(reader, None)
        self._served[reader] = None
        if len(self._served) > _READERS_MAX:
            del self._served[next(iter(self._served))]
        return reader

    def _longest_ago(self) -> Hashable:
        """Of those that wait the one whose turn it is: who has not had one yet, then by how long ago it was."""
        for reader in self._waiting:
            if reader not in self._served:
                return reader
        return next(reader for reader in self._served if reader in self._waiting)


class Together:
    """Two limits that both hold.  As `DispatchLimit` to who hands messages out."""

    __slots__ = ("own", "shared")

    def __init__(self, own: DispatchLimit, shared: DispatchLimit) -> None:
        self.own = own
        self.shared = shared

    def owed_s(self) -> float:
        return max(self.own.owed_s(), self.shared.owed_s())

    def admits(self, reader: Hashable) -> bool:
        return self.own.admits(reader) and self.shared.admits(reader)

    def fitting(self, entries: Sequence[Entry]) -> int:
        return min(self.own.fitting(entries), self.shared.fitting(entries))

    def used(self, messages: int, size: int) -> None:
        self.own.used(messages, size)
        self.shared.used(messages, size)

    def wait(self, reader: Hashable, go_on: Callable[[], None]) -> None:
        """At the one that does not admit the reader, whose turn at the other one is others'."""
        at, other = (self.own, self.shared) if not self.own.admits(reader) else (self.shared, self.own)
        at.wait(reader, go_on)
        other.done(reader)

    def done(self, reader: Hashable) -> None:
        self.own.done(reader)
        self.shared.done(reader)

    def leave(self, reader: Hashable) -> None:
        self.own.leave(reader)
        self.shared.leave(reader)


PartitionLimit: TypeAlias = DispatchLimit | Together


def together(
    own: DispatchLimit | None, shared: DispatchLimit | None, former: PartitionLimit | None
) -> PartitionLimit | None:
    """What holds of the two; `former`, if it is what held before and the same."""
    if own is None or shared is None:
        return own or shared
    if isinstance(former, Together) and former.own is own and former.shared is shared:
        return former
    return Together(own, shared)
