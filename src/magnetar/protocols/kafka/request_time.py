"""Measures how much of the event loop's time one request takes, for clients with a limit on it (KIP-124).

The loop's work for a request counts: reading it, handling it (also in coroutines, and again after a wait), and writing
its answer.  The work of disks and threads does not count, nor does a synced write that many requests share.  The answer
contains the throttle time, so the session computes that time before it writes the answer; as in Kafka, the client's
next request pays for the writing.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

THROTTLE_MS_MAX: Final = 1_000  # as in Kafka: the length of one of the windows in which it measures


class Meter(Protocol):
    """Adds up the time that requests of a client take."""

    def worked(self, seconds: float) -> int:
        """Add `seconds` of work for the client; return after how many milliseconds it is within its limit again."""
        ...


class RequestTime:
    """The time of one request; it counts from the creation of this object."""

    __slots__ = ("_is_told", "_meter", "_monotonic", "_since_s", "_used_s")

    def __init__(self, meter: Meter, monotonic: Callable[[], float]) -> None:
        self._meter = meter
        self._monotonic = monotonic
        self._used_s = 0.0
        self._is_told = False
        self._since_s: float | None = monotonic()

    def pause(self) -> None:
        """From now on the loop works on something else."""
        if self._since_s is not None:
            self._used_s += self._monotonic() - self._since_s
            self._since_s = None

    def go_on(self) -> None:
        """From now on the loop works on this request."""
        if self._since_s is None:
            self._since_s = self._monotonic()

    def told_ms(self) -> int:
        """Count the time used so far; return how long the client has to wait, and 0 at every later call."""
        throttle_ms = self._count()
        if self._is_told:
            return 0
        self._is_told = True
        return min(throttle_ms, THROTTLE_MS_MAX)

    def end(self) -> None:
        """Count the time used so far; the request takes no more."""
        self._count()

    def _count(self) -> int:
        is_running = self._since_s is not None
        self.pause()
        used_s, self._used_s = self._used_s, 0.0
        if is_running:
            self.go_on()
        return self._meter.worked(used_s)

    async def of(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`, count its steps, and return its result."""
        return await _Steps(self, work)


class _Steps(Awaitable[T]):
    """Runs a coroutine, and counts the time between its waits."""

    __slots__ = ("_time", "_work")

    def __init__(self, time: RequestTime, work: Coroutine[Any, Any, T]) -> None:
        self._time = time
        self._work = work

    def __await__(self) -> Generator[Any, None, T]:
        time, work = self._time, self._work
        error: BaseException | None = None
        while True:
            time.go_on()
            try:
                waits_for = work.send(None) if error is None else work.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                time.pause()
            try:
                yield waits_for
            except BaseException as raised:  # noqa: BLE001 - a cancel, too, is the work's to answer
                error = raised
            else:
                error = None
