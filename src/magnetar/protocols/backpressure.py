"""When a connection is read from, and when not: the one rule of all doors.

A session reports each request with what it holds (`began`, `ended`).  Nothing here does I/O or reads a clock: what
follows is a call of the peer's `pause_reading` or `resume_reading`.

**Reading pauses** when the connection has too many requests or too many bytes of them unanswered, when all connections
together hold too much (`base/memory_budget.py`), when the peer takes too little of what it is sent (`outbox.py`), and
when the session says so (`pause`): it has received what it cannot handle yet.

**Reading resumes** when at most half of the connection's limits is unanswered, all connections together hold little
enough, and nothing else stands in the way:

- `at_work`: a request that all others wait for.  It does not pause reading by itself: a client that waits for its
  answer costs nothing, and is missed at once when it hangs up.  What comes meanwhile does.
- `awaits_turn`: the connection has had its turn, and others have theirs first (`base/turns.py`).
- `is_throttled`: the client has used more than it may (`throttle`, `end_throttle`).
- `outbox_is_full`: the peer takes too little.
- `awaits_memory`: a large frame was announced and has no room yet.  What came before it is handled all the same, as
  that may make the room.

Before anything is read, `go_on` handles what was received and not handled.  A request counts until it has ended, even
when its connection has ended before.
"""

from collections.abc import Callable
from typing import Protocol

from magnetar.protocols.traffic import Traffic


class Reading(Protocol):
    """The reading side of a connection."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def nothing(*_: object) -> None:
    """What is called where there is nothing to do."""


class Backpressure:
    """See the module's text."""

    __slots__ = (
        "_bytes_max", "_go_on", "_is_ending", "_is_going_on", "_is_reading", "_memory", "_ran_short", "_reading",
        "_requests_max", "_traffic", "_when_answered", "at_work", "awaits_memory", "awaits_turn", "is_paused",
        "is_throttled", "outbox_is_full", "unanswered", "unanswered_bytes",
    )  # fmt: skip

    def __init__(
        self,
        reading: Reading,
        traffic: Traffic,
        requests_max: int,
        bytes_max: int,
        go_on: Callable[[], None] = nothing,
        ran_short: Callable[[], None] | None = None,
    ) -> None:
        """`go_on` stops as soon as `is_paused`.

        `ran_short` is called when what this connection holds has grown and all connections together hold too much.
        """
        self._reading = reading
        self._traffic = traffic
        self._memory = traffic.memory
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._go_on = go_on
        self._ran_short = ran_short
        self.unanswered = 0
        self.unanswered_bytes = 0
        self.is_paused = False  # nothing that comes is handled
        self._is_reading = True
        self._is_going_on = False
        self._is_ending = False
        self._when_answered: Callable[[], None] | None = None
        # What stands in the way, see the module's text:
        self.at_work: object | None = None
        self.awaits_turn = False
        self.awaits_memory = False
        self.is_throttled = False
        self.outbox_is_full = False

    # --- what requests hold ------------------------------------------------------------------------------------------

    def began(self, size: int, count: int = 1) -> None:
        """A request that holds `size` bytes is to be answered; with 0, one that has begun holds so many more.

        `ended` follows, whatever becomes of the connection.
        """
        unanswered = self.unanswered = self.unanswered + count
        unanswered_bytes = self.unanswered_bytes = self.unanswered_bytes + size
        self._traffic.queued_bytes += size
        memory = self._memory
        memory.take(size)
        if (
            (memory.used > memory.bytes_max and memory.is_over)  # nearly always decided without a call
            or unanswered > self._requests_max
            or unanswered_bytes > self._bytes_max
        ):
            self._have_too_much()

    def ended(self, size: int, count: int = 1) -> None:
        """So many requests are answered, or never will be, and what they held has gone; with 0, one holds less."""
        self.unanswered -= count
        self.unanswered_bytes -= size
        self._traffic.queued_bytes -= size
        self._memory.give(size)
        if self.is_paused:
            self.resume_if_possible()

    # --- pauses ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Pause if all connections together hold too much: this one holds more besides requests, such as answers."""
        if self._memory.is_over:
            self._have_too_much()

    def _have_too_much(self) -> None:
        self.pause()
        if self._ran_short is not None and self._memory.is_over:
            self._ran_short()

    def pause(self) -> None:
        """Handle nothing more, and read nothing, until nothing stands in the way."""
        if not self.is_paused:
            self.is_paused = True
            if self._memory.is_over:
                self._memory.hold(self)
            if self._is_reading:
                self._is_reading = False
                self._reading.pause_reading()

    def await_turn(self, leads_to_s: float = 0.0) -> None:
        """Pause until all others have had their turn; then so much work is expected besides what is held."""
        self.pause()
        if not self.awaits_turn:
            self.awaits_turn = True
            self._traffic.turns.wait(self._have_turn, leads_to_s)

    def _have_turn(self) -> None:
        self.awaits_turn = False
        self.resume_if_possible()

    def throttle(self) -> None:
        """Pause until `end_throttle`."""
        self.is_throttled = True
        self.pause()

    def end_throttle(self) -> None:
        self.is_throttled = False
        self.resume_if_possible()

    def resume_if_possible(self) -> None:
        """Handle what was received, and read on, if nothing stands in the way."""
        if self._when_answered is not None and not self.unanswered:
            when_answered, self._when_answered = self._when_answered, None
            when_answered()
        if self._is_going_on or not self._may_go_on():
            return
        if self._memory.is_over:
            self._memory.hold(self)
            return
        self._memory.let_go(self)
        self.is_paused = False
        self._is_going_on = True
        self._go_on()
        self._is_going_on = False
        if self.is_paused:
            if self._may_go_on():  # what paused it has ended meanwhile
                self.await_turn()
        elif self.awaits_memory:
            self.pause()
        else:
            self._is_reading = True
            self._reading.resume_reading()

    def _may_go_on(self) -> bool:
        return (
            self.is_paused
            and not self._is_ending
            and self.at_work is None
            and not self.awaits_turn
            and not self.outbox_is_full
            and not self.is_throttled
            and self.unanswered <= self._requests_max // 2
            and self.unanswered_bytes <= self._bytes_max // 2
        )

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self, when_answered: Callable[[], None]) -> None:
        """Handle nothing more; call `when_answered` once, when nothing is unanswered."""
        self.close()
        self._when_answered = when_answered
        self.resume_if_possible()

    def close(self) -> None:
        """Handle and read nothing more."""
        self._is_ending = True
        self._go_on = nothing  # which knows this: a cycle would leave both to the collector
        self._when_answered = None
        self.is_paused = True
        self._memory.let_go(self)
