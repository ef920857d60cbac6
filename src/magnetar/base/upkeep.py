"""Work that has to go on for as long as the server runs: jobs at intervals, and tasks that must not end.

No caller waits for such work, so no caller would see it fail.  If the work raises an exception that it did not foresee,
this module logs it once with its traceback, and counts it.  It tries the job again, later each time, and `problem`
names the job until it has succeeded.  A task that fails, or ends before it was asked to, stays a problem until the next
start.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from magnetar.base.clock import Clock, TimerHandle

log = logging.getLogger(__name__)

BACK_OFF_S_MAX: Final = 300.0

Work = Callable[[], Coroutine[Any, Any, object]]


class Job:
    """One piece of periodic work, made by `Upkeep.every`; its runs never overlap."""

    def __init__(self, clock: Clock, name: str, interval_s: float, work: Work) -> None:
        self.name = name
        self.failures = 0  # since it last succeeded
        self.failures_total = 0
        self._clock = clock
        self._interval_s = interval_s
        self._work = work
        self._timer: TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None  # while it is at work
        self._stopped = False
        self._failed_at_ms = 0
        self._error = ""

    @property
    def problem(self) -> str | None:
        """What is wrong, in a sentence for the operator; None for nothing."""
        if not self.failures:
            return None
        since = datetime.fromtimestamp(self._failed_at_ms / 1000, UTC).isoformat(timespec="seconds")
        times = "once" if self.failures == 1 else f"{self.failures} times"
        return (
            f"The upkeep of {self.name} has failed {times} since {since} ({self._error}) and is tried again;"
            " the log has the traceback."
        )

    def start(self) -> None:
        """Run it one interval from now, and an interval after each end; later when it fails again and again."""
        delay_s = self._interval_s
        if self.failures:
            delay_s = max(min(delay_s * 2 ** min(self.failures - 1, 30), BACK_OFF_S_MAX), delay_s)
        self._timer = self._clock.call_later(delay_s, self._due)

    def soon(self) -> None:
        """Run it now, instead of when it is due; it is left alone while it is at work."""
        if self._timer is not None and not self._stopped:
            self._timer.cancel()
            self._due()

    def cancel(self) -> None:
        """Run no more; a run that is under way is cancelled."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None:
            self.task.cancel()

    async def stop(self) -> None:
        """As `cancel`; a run that was under way has ended when this returns."""
        self.cancel()
        if self.task is not None:
            await asyncio.wait([self.task])

    def _due(self) -> None:
        self._timer = None
        self.task = asyncio.get_running_loop().create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        error: BaseException | None = None
        try:
            await self._work()
        except asyncio.CancelledError as cancelled:
            if self._stopped:
                raise
            error = cancelled  # of something that it waited for
        except Exception as unforeseen:  # noqa: BLE001  whatever it is, the next run must come
            error = unforeseen
        self.task = None
        self._ended(error)

    def _ended(self, error: BaseException | None) -> None:
        if error is None:
            if self.failures:
                log.info("the upkeep of %s succeeds again", self.name)
            self.failures = 0
        else:
            self.failures += 1
            self.failures_total += 1
            self._error = repr(error)[:200]
            if self.failures == 1:
                self._failed_at_ms = self._clock.now_ms()
                log.error("the upkeep of %s failed; the server tries it again", self.name, exc_info=error)
        if not self._stopped:
            self.start()


class Watch:
    """A task that no caller waits for, made by `Upkeep.watch`."""

    def __init__(self, name: str, *, may_end: bool) -> None:
        self.name = name
        self.problem: str | None = None
        self._may_end = may_end

    def expect_end(self) -> None:
        """Its owner is about to end it: its end is no failure."""
        self._may_end = True

    def ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None or not self._may_end:
            self.problem = (
                f"The work of {self.name} has ended ({error!r:.200}): restart the server; the log has"
                " the traceback."
            )
            log.error(
                "the work of %s has ended; it begins again at the next start", self.name, exc_info=error
            )


class Upkeep:
    """See the module's text.  Names say what the work is for, as in "the upkeep of retention"."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.jobs: list[Job] = []
        self._watches: set[Watch] = set()

    def every(self, interval_s: float, name: str, work: Work) -> Job:
        """Run `work` every `interval_s` seconds, the first time in one interval."""
        job = Job(self._clock, name, interval_s, work)
        self.jobs.append(job)
        job.start()
        return job

    def watch(self, name: str, task: asyncio.Task[Any], *, may_end: bool = False) -> Watch:
        """Make it a problem when `task` fails, or ends unless it `may_end`; not when it is cancelled."""
        watch = Watch(name, may_end=may_end)
        self._watches.add(watch)

        def ended(task: asyncio.Task[Any]) -> None:
            watch.ended(task)
            if watch.problem is None:
                self._watches.discard(watch)

        task.add_done_callback(ended)
        return watch

    async def idle(self) -> None:
        """Return when no job is at work."""
        while tasks := [job.task for job in self.jobs if job.task is not None]:
            await asyncio.wait(tasks)

    @property
    def problem(self) -> str | None:
        """What is wrong, one sentence for each, for the operator; None for nothing."""
        parts: list[Job | Watch] = [*self.jobs, *sorted(self._watches, key=lambda watch: watch.name)]
        return " ".join(filter(None, [one.problem for one in parts])) or None

    async def stop(self) -> None:
        """End all jobs; the owners of watched tasks end those."""
        for job in self.jobs:
            await job.stop()
