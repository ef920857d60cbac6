"""When the server reads from a connection, and when it does not: the same rules for all doors.

A session reports each request with the bytes that it holds (`began`, `ended`).  This module does no I/O and reads no
clock: it only calls the peer's `pause_reading` and `resume_reading`.

**Reading pauses** if one of these is true:

* the connection has too many unanswered requests, or too many bytes of them;
* all connections together hold too much (`base/memory_budget.py`);
* the peer reads too little of what it is sent (`outbox.py`);
* the session asks for it (`pause`), because it has received what it cannot handle yet.

**Reading resumes** when at most half of the connection's limits is unanswered, all connections together hold little
enough, and none of these is true:

- `at_work`: a request is at work for which all others wait.  This does not pause reading by itself: a client that
  waits for its answer costs nothing, and the server notices at once when it hangs up.  Frames that come meanwhile do
  pause it.
- `awaits_turn`: the connection has had its turn, and others come first (`base/turns.py`).
- `is_throttled`: the client has exceeded a quota (`throttle`, `end_throttle`).
- `outbox_is_full`: the peer reads too little.
- `awaits_memory`: a large frame has begun and has no room yet.  Frames before it are handled nevertheless, because
  that may make room.

Before it reads again, `go_on` handles frames that were received and not handled.  A request counts until it has
ended, even if its connection ends earlier.
"""

from collections.abc import Callable
from typing import Protocol

from magnetar.protocols.traffic import Traffic


class Reading(Protocol):
    """The reading side of a connection."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def nothing(*_: object) -> None:
    """Does nothing; a default for callbacks."""


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

        It calls `ran_short` when this connection holds more than before and all connections together hold too much.
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
        self.is_paused = False  # no frame is handled
        self._is_reading = True
        self._is_going_on = False
        self._is_ending = False
        self._when_answered: Callable[[], None] | None = None
        # Reasons not to read, see the module's text:
        self.at_work: object | None = None
        self.awaits_turn = False
        self.awaits_memory = False
        self.is_throttled = False
        self.outbox_is_full = False

    # --- what requests hold ------------------------------------------------------------------------------------------

    def began(self, size: int, count: int = 1) -> None:
        """Count `count` requests that hold `size` bytes; with a count of 0, a counted request holds `size` bytes
        more.

        The caller must call `ended` later, also if the connection ends.
        """
        unanswered = self.unanswered = self.unanswered + count
        unanswered_bytes = self.unanswered_bytes = self.unanswered_bytes + size
        self._traffic.queued_bytes += size
        memory = self._memory
        memory.take(size)
        if (
            (memory.used > memory.bytes_max and memory.is_over)  # mostly decided without a call
            or unanswered > self._requests_max
            or unanswered_bytes > self._bytes_max
        ):
            self._have_too_much()

    def ended(self, size: int, count: int = 1) -> None:
        """Count off `count` requests that are answered, or never will be, and their `size` bytes; with 0, one holds
        less.
        """
        self.unanswered -= count
        self.unanswered_bytes -= size
        self._traffic.queued_bytes -= size
        self._memory.give(size)
        if self.is_paused:
            self.resume_if_possible()

    # --- pauses ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Pause if all connections together hold too much; called when this one holds more besides requests, such as
        answers.
        """
        if self._memory.is_over:
            self._have_too_much()

    def _have_too_much(self) -> None:
        self.pause()
        if self._ran_short is not None and self._memory.is_over:
            self._ran_short()

    def pause(self) -> None:
        """Handle no frame and read nothing until no reason against it is left."""
        if not self.is_paused:
            self.is_paused = True
            if self._memory.is_over:
                self._memory.hold(self)
            if self._is_reading:
                self._is_reading = False
                self._reading.pause_reading()

    def await_turn(self, leads_to_s: float = 0.0) -> None:
        """Pause until all others have had their turn; this connection's turn is then expected to take `leads_to_s`
        more.
        """
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
        """Handle what was received and read on, if there is no reason against it."""
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
            if self._may_go_on():  # the reason for the pause has ended meanwhile
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
        """Handle no more frames; call `when_answered` once, when all requests are answered."""
        self.close()
        self._when_answered = when_answered
        self.resume_if_possible()

    def close(self) -> None:
        """Handle no more frames, and read no more."""
        self._is_ending = True
        self._go_on = nothing  # it refers to this object: a cycle would need the collector
        self._when_answered = None
        self.is_paused = True
        self._memory.let_go(self)
