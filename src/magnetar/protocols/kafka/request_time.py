"""How much of the event loop's time one request takes, for clients whose time is limited (KIP-124).

What runs on the loop for a request counts: reading it, handling it (also in coroutines, and when it is looked at again
after a wait), writing its answer.  What others do for it meanwhile does not: disks, threads, a synced write that many
requests share.  An answer says how long to wait before it is written, so that the next request pays for that part, as
in Kafka.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

THROTTLE_MS_MAX: Final = 1_000  # as in Kafka: the length of one of the windows in which it measures


class Meter(Protocol):
    """What the time of a client counts in."""

    def worked(self, seconds: float) -> int:
        """So long was worked for it; the milliseconds until it owes nothing."""
        ...


class RequestTime:
    """Of one request; counts from when it is made."""

    __slots__ = ("_is_told", "_meter", "_monotonic", "_since_s", "_used_s")

    def __init__(self, meter: Meter, monotonic: Callable[[], float]) -> None:
        self._meter = meter
        self._monotonic = monotonic
        self._used_s = 0.0
        self._is_told = False
        self._since_s: float | None = monotonic()

    def pause(self) -> None:
        """The loop does other things from now on."""
        if self._since_s is not None:
            self._used_s += self._monotonic() - self._since_s
            self._since_s = None

    def go_on(self) -> None:
        """The loop works on this request from now on."""
        if self._since_s is None:
            self._since_s = self._monotonic()

    def told_ms(self) -> int:
        """Count what was used until now; how long the client has to wait for it; 0 when asked again."""
        throttle_ms = self._count()
        if self._is_told:
            return 0
        self._is_told = True
        return min(throttle_ms, THROTTLE_MS_MAX)

    def end(self) -> None:
        """Count what was used until now; the request needs nothing more."""
        self._count()

    def _count(self) -> int:
        is_running = self._since_s is not None
        self.pause()
        used_s, self._used_s = self._used_s, 0.0
        if is_running:
            self.go_on()
        return self._meter.worked(used_s)

    async def of(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives; its steps count."""
        return await _Steps(self, work)


class _Steps(Awaitable[T]):
    """Runs work that waits now and then, and counts what is between its waits."""

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
