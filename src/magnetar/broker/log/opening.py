"""Work that decompresses records: on threads, within limits, with one owner after the other.

A few hundred bytes may expand to a million records or to 256 MiB.  So only the smallest batches are opened on the
event loop.  All others become jobs of an `Opener`, which has two lanes.  The first lane takes every job, with a
budget that is enough for what real clients send, so that no job takes long.  A job that exceeds the budget begins
again in the second lane, which runs one job at a time.  So decompression bombs get the memory of only one job, and
other clients do not wait for them.

In each lane owners (connections, partitions) take turns, one job each: an owner that queues a thousand jobs slows
down only itself.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from magnetar.base.errors import StorageError
from magnetar.base.thread_time import counted
from magnetar.wire.kafka.record_reader import TooLargeExpanded
from magnetar.wire.kafka.record_scan import WHOLE, Budget

T = TypeVar("T")

SMALL: Final = Budget(4 << 20, 20_000)
LARGE: Final = WHOLE
_SMALL_THREADS: Final = 2
_CLOSED: Final = "the server stops"


class _Lane:
    """Jobs of one budget, on `threads` threads."""

    def __init__(self, name: str, threads: int, budget: Budget) -> None:
        self.budget = budget
        self.done = 0
        self._threads = ThreadPoolExecutor(threads, name)
        self._free = threads
        self._queues: OrderedDict[Hashable, deque[tuple[Callable[[Budget], Any], asyncio.Future[Any]]]]
        self._queues = OrderedDict()
        self._is_closed = False

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    async def run(self, owner: Hashable, job: Callable[[Budget], T]) -> T:
        if self._is_closed:
            raise StorageError(_CLOSED)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append((counted(job), answer))
        self._start()
        try:
            return await answer
        finally:
            del answer  # it has the error that is raised, whose traceback has this frame (`base/errors.kept`)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._free and self._queues:
            owner, queue = self._queues.popitem(last=False)
            job, answer = queue.popleft()
            if queue:
                self._queues[owner] = queue  # after all other owners
            if answer.done():
                continue  # its caller no longer waits
            self._free -= 1
            running = loop.run_in_executor(self._threads, job, self.budget)
            running.add_done_callback(partial(self._finished, answer))

    def _finished(self, answer: "asyncio.Future[Any]", running: "asyncio.Future[Any]") -> None:
        self._free += 1
        self.done += 1
        if running.cancelled():
            error: BaseException | None = StorageError(_CLOSED)
        else:
            error = running.exception()
        if not answer.done():
            if error is None:
                answer.set_result(running.result())
            else:
                answer.set_exception(error)
        if not self._is_closed:
            self._start()

    def close(self) -> None:
        self._is_closed = True
        for queue in self._queues.values():
            for _, answer in queue:
                if not answer.done():
                    answer.set_exception(StorageError(_CLOSED))
        self._queues.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)


class Opener:
    """See the module's text.  All methods run on the event loop."""

    def __init__(self) -> None:
        self._small = _Lane("magnetar-open", _SMALL_THREADS, SMALL)
        self._large = _Lane("magnetar-open-large", 1, LARGE)

    async def run(self, owner: Hashable, job: Callable[[Budget], T], *, is_large: bool = False) -> T:
        """Run `job` on a thread, and again with the larger budget if the small one is not enough; returns or raises
        what it does.

        In each lane the jobs of one owner begin in the order of the calls; `is_large` sends a job to the second lane
        at once.  Cancelling takes a job out of the queue; a job that has begun runs to its end.

        Raises:
            TooLargeExpanded: the larger budget is not enough, either.
            StorageError: the server stops.
        """
        if not is_large:
            try:
                return await self._small.run(owner, job)
            except TooLargeExpanded:
                pass
        return await self._large.run(owner, job)

    @property
    def small_done(self) -> int:
        """How many jobs ended within the small budget, or were found to need the large one."""
        return self._small.done

    @property
    def large_done(self) -> int:
        """How many jobs took the large budget."""
        return self._large.done

    @property
    def waiting(self) -> int:
        """How many jobs wait for their turn."""
        return self._small.waiting + self._large.waiting

    def close(self) -> None:
        """Begin no more jobs, because the server stops; waiting jobs fail with StorageError."""
        self._small.close()
        self._large.close()
