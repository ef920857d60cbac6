"""How fast messages may go out, of one partition or to one subscription: Pulsar's dispatch rates.

A reader that hands messages out asks `admits` before it reads, takes as many as are `fitting`, and reports what it
has `used`.  If it is not admitted, it can `wait`: it is called when its turn comes, and decides whether to continue
then.  Of the waiting readers, the one whose last turn was longest ago goes first.  While some wait, or one has its
turn, no others are admitted; so no reader of a partition starves beside a faster one.

A partition that has a limit of its own and shares another one, with a resource group's topics, has both `Together`.

A reader is known by a value that stays the same when it comes again (the name of a subscription, the number of a
connection).  There is a timer only while some wait or one has its turn.
"""

from collections.abc import Callable, Hashable, Sequence
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
        """Whether the reader may read something now."""
        if self._turn != reader and (self._waiting or self._turn is not None):
            return False
        return not self.owed_s()

    def fitting(self, entries: Sequence[Entry]) -> int:
        """How many of these an admitted reader may take: one at least, for it would never get on otherwise."""
        return max(super().fitting(entries), min(len(entries), 1))

    def wait(self, reader: Hashable, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, when the reader's turn has come, or when the limit no longer applies."""
        if self._turn == reader:
            self._turn = None
            self._stop_timer()
        self._waiting[reader] = go_on
        if self._timer is None:
            self._set_timer()

    def pass_turn(self, reader: Hashable) -> None:
        """The reader has nothing to take now.  If it has its turn, the next reader's begins as soon as nothing is
        owed.

        Otherwise many readers that want little would wait for each other below the rate, and never catch up.
        """
        if self._turn == reader:
            self._turn = None
            self._stop_timer()
            if self._waiting:
                self._timer = self._clock.call_later(self.owed_s(), self._next_turn)

    def leave(self, reader: Hashable) -> None:
        """The reader no longer waits."""
        self._waiting.pop(reader, None)
        if not self._waiting and self._turn is None:
            self._stop_timer()

    def close(self) -> None:
        """The limit no longer applies: all waiting readers continue, under another limit or under none."""
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
        """Begin the turn of a waiting reader; returns which one."""
        reader = self._turn = self._longest_ago()
        self._served.pop(reader, None)
        self._served[reader] = None
        if len(self._served) > _READERS_MAX:
            del self._served[next(iter(self._served))]
        return reader

    def _longest_ago(self) -> Hashable:
        """The waiting reader whose turn it is: one that has not had a turn yet, else the one whose last turn was
        longest ago.
        """
        for reader in self._waiting:
            if reader not in self._served:
                return reader
        return next(reader for reader in self._served if reader in self._waiting)


class Together:
    """Two limits that both apply.  Readers use it like one `DispatchLimit`."""

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
        """Wait at the limit that does not admit the reader; others have its turn at the other limit."""
        at, other = (self.own, self.shared) if not self.own.admits(reader) else (self.shared, self.own)
        at.wait(reader, go_on)
        other.pass_turn(reader)

    def pass_turn(self, reader: Hashable) -> None:
        self.own.pass_turn(reader)
        self.shared.pass_turn(reader)

    def leave(self, reader: Hashable) -> None:
        self.own.leave(reader)
        self.shared.leave(reader)


PartitionLimit: TypeAlias = DispatchLimit | Together


def together(
    own: DispatchLimit | None, shared: DispatchLimit | None, former: PartitionLimit | None
) -> PartitionLimit | None:
    """The limit that both make; `former` if that is equal."""
    if own is None or shared is None:
        return own or shared
    if isinstance(former, Together) and former.own is own and former.shared is shared:
        return former
    return Together(own, shared)
