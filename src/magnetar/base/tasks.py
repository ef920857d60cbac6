"""Tasks that no caller waits for, held by an owner that does.

The event loop itself holds a task only weakly, and the failure of a task that no code awaits is lost.  A part of the
server that begins such work keeps it in a `Tasks`, which logs failures.  Before the part closes what the work uses, it
waits for the rest of the work, or ends it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from magnetar.base.errors import MagnetarError, kept

T = TypeVar("T")


async def outcomes(works: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
    """What each of `works` returned or raised, in their order.  They run side by side; one alone needs no task."""
    if len(works) != 1:
        return await asyncio.gather(*works, return_exceptions=True)
    try:
        return [await works[0]]
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return [kept(error) if isinstance(error, MagnetarError) else error]


class Tasks:
    """The tasks of one owner that have not ended; failures go to `log`."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def spawn(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` in the background; its failure is logged, never lost.  A caller may cancel the task."""
        return self._started(name, work, self._spawned_ended)

    def begin(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` whether its caller goes on waiting for it or not; a caller that waits gets its failure."""
        return self._started(name, work, self._begun_ended)

    def cancel(self) -> None:
        """End all of them; `ended` waits until they have."""
        for task in self:
            task.cancel()

    async def ended(self) -> None:
        """Return when there are none, those included that others begin meanwhile."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _started(
        self, name: str, work: Coroutine[Any, Any, T], ended: Callable[[asyncio.Task[Any]], None]
    ) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        # One callback does all that follows: each costs a turn in the loop's queue, and requests are tasks.
        task.add_done_callback(ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("background work failed: %s", task.get_name(), exc_info=error)

    def _begun_ended(self, task: asyncio.Task[Any]) -> None:
        """Its caller may have gone: take its failure, so that asyncio does not log it."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


def settle(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    """End a future as what it stands for has ended; a caller that waited may have been cancelled meanwhile."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
