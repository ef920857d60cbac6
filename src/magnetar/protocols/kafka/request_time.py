"""Measures how much of the server's time one request takes, for clients with a limit on it (KIP-124).

The loop's work for a request counts: reading it, handling it (also in coroutines, and again after a wait), and writing
its answer.  So does the work of threads for it (`base/thread_time.py`): decompressing, converting, reading segments.
Waiting for disks does not count, nor does a synced write that many requests share.  The answer contains the throttle
time, so the session computes that time before it writes the answer.  As in Kafka, the client's next request pays for
the writing.  It also pays for what threads do after the answer, such as reading ahead.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

from magnetar.base.thread_time import Counting, count_for

T = TypeVar("T")

THROTTLE_MS_MAX: Final = 1_000  # as in Kafka: the length of one of the windows in which it measures


class Meter(Protocol):
    """Adds up the time that requests of a client take."""

    def worked(self, seconds: float) -> int:
        """Add `seconds` of work for the client; return after how many milliseconds it is within its limit again."""
        ...


class RequestTime:
    """The time of one request; it counts from the creation of this object."""

    __slots__ = ("_before", "_is_told", "_meter", "_monotonic", "_since_s", "_used_s", "is_over")

    def __init__(self, meter: Meter, monotonic: Callable[[], float]) -> None:
        self._meter = meter
        self._monotonic = monotonic
        self._used_s = 0.0
        self._is_told = False
        self.is_over = False
        self._since_s: float | None = None
        self._before: Counting | None = None
        self.go_on()

    def pause(self) -> None:
        """From now on the loop works on something else."""
        if self._since_s is not None:
            self._used_s += self._monotonic() - self._since_s
            self._since_s = None
            count_for(self._before)
            self._before = None

    def go_on(self) -> None:
        """From now on the loop works on this request."""
        if self._since_s is None:
            self._since_s = self._monotonic()
            self._before = count_for(self)

    def thread_worked(self, seconds: float) -> None:
        """See `Counting`.  What began before the end, such as reading ahead, may end after it."""
        if self.is_over:
            self._meter.worked(seconds)
        else:
            self._used_s += seconds

    def told_ms(self) -> int:
        """Count the time used so far; return how long the client has to wait, and 0 at every later call."""
        throttle_ms = self._count()
        if self._is_told:
            return 0
        self._is_told = True
        return min(throttle_ms, THROTTLE_MS_MAX)

    def end(self) -> None:
        """Count the time used so far; the loop takes no more for the request."""
        self.pause()
        self._count()
        self.is_over = True

    def _count(self) -> int:
        used_s, self._used_s = self._used_s, 0.0
        if self._since_s is not None:
            now_s = self._monotonic()
            used_s += now_s - self._since_s
            self._since_s = now_s
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
        waits_for: Any = None
        try:
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
        finally:
            del error, waits_for  # both have the error that is raised, whose traceback has this frame
