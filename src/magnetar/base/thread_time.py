"""What a thread works for: its time counts for the work on the event loop that has asked for it, if that is counted.

Code that gives a job to a thread wraps it by `counted`.  The owner of the time calls `count_for` while the loop works
for it.  Jobs that begin then are its own, and so are the jobs of tasks that begin then, until that work is over.  What
counts is the time of the processor, not the waiting for a disk or for other threads.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from time import thread_time
from typing import Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Counting(Protocol):
    """Adds up time."""

    is_over: bool  # no job that begins now counts for it

    def thread_worked(self, seconds: float) -> None:
        """Called on the event loop, before it has the job's result."""
        ...


_present: Final[ContextVar[Counting | None]] = ContextVar("thread_time", default=None)


def count_for(whom: Counting | None) -> Counting | None:
    """From now on jobs count for `whom`, if it is given.  Returns what they counted for before; the caller sets that
    again afterwards.
    """
    before = _present.get()
    _present.set(whom)
    return before


def counted(job: Callable[P, T]) -> Callable[P, T]:
    """The job as a thread has to run it.  Call this on the event loop."""
    whom = _present.get()
    if whom is None or whom.is_over:
        return job
    return partial(_run, job, whom, asyncio.get_running_loop())


def _run(
    job: Callable[P, T], whom: Counting, loop: asyncio.AbstractEventLoop, *args: P.args, **kwargs: P.kwargs
) -> T:
    began_s = thread_time()
    try:
        return job(*args, **kwargs)
    finally:
        with suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(whom.thread_worked, thread_time() - began_s)
