"""Runs one query at a time, shows its progress, and lets the user cancel it.

The query runs on a thread of its own, in a Spark job group.  The calling thread, which must be the main one, shows
how many tasks are done, and waits.  While it waits, Ctrl-C does not raise, because an exception in the middle of a
call to the JVM would leave half an answer in that connection.  It is counted, and handled between two calls.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from magnetar.pipelines.sql.errors import QueryCancelled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.status import Status

_POLL_S: Final = 0.2
_QUIET_S: Final = 0.5  # a shorter query shows no progress

T = TypeVar("T")


class Runner:
    """Runs queries of one Spark session, and shows their progress on `console`, which is standard error."""

    def __init__(self, spark: "SparkSession", console: "Console") -> None:
        self._context: Final = spark.sparkContext
        self._console: Final = console
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="magnetar-sql")
        self._number = 0

    def close(self) -> None:
        """Take no more queries; one that still runs ends with its session."""
        self._thread.shutdown(wait=False)

    def run(self, query: Callable[[], T]) -> T:
        """Run `query`; returns or raises what it does.

        Raises:
            QueryCancelled: Ctrl-C; Spark has ended the query.
            KeyboardInterrupt: a second Ctrl-C, before the query had ended.
        """
        self._number += 1
        group = f"magnetar-sql-{self._number}"

        def grouped() -> T:
            self._context.setJobGroup(group, "magnetar sql", interruptOnCancel=True)
            return query()

        with _counted_interrupts() as interrupts:
            future = self._thread.submit(grouped)
            self._wait(future, group, interrupts)
        if interrupts and future.exception() is not None:
            raise QueryCancelled("the query is cancelled") from None
        return future.result()

    def _wait(self, future: "Future[T]", group: str, interrupts: list[float]) -> None:
        begin = time.monotonic()
        status: Status | None = None
        try:
            while not _done(future, _POLL_S):
                if len(interrupts) > 1:
                    raise KeyboardInterrupt
                if interrupts:
                    # Again each time, because a query that is still being planned has no job to cancel.
                    self._context.cancelJobGroup(group)
                if self._console.is_terminal and time.monotonic() - begin > _QUIET_S:
                    text = self._progress(group, time.monotonic() - begin, cancelled=bool(interrupts))
                    if status is None:
                        status = self._console.status(text)
                        status.start()
                    status.update(text)
        finally:
            if status is not None:
                status.stop()

    def _progress(self, group: str, seconds: float, *, cancelled: bool) -> str:
        if cancelled:
            return "cancelling; Ctrl-C once more to leave"
        done = total = 0
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                if (tasks := tracker.getStageInfo(stage)) is not None:
                    done += tasks.numCompletedTasks
                    total += tasks.numTasks
        tasks_done = f"{done} of {total} tasks, " if total else "planning, "
        return f"{tasks_done}{seconds:.0f} s (Ctrl-C cancels)"


def _done(future: "Future[T]", timeout_s: float) -> bool:
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    return ended.wait(timeout_s)


@contextmanager
def _counted_interrupts() -> Iterator[list[float]]:
    """Collects the times of SIGINTs while the block runs."""
    times: list[float] = []
    before = signal.signal(signal.SIGINT, lambda *_: times.append(time.monotonic()))
    try:
        yield times
    finally:
        signal.signal(signal.SIGINT, before)
