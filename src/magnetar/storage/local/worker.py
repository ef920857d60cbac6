"""One thread for calls that block."""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """One thread that carries out calls in order and reports them on the loop."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, on_failure: Callable[[str, BaseException], None]
    ) -> None:
        self._loop = loop
        self._on_failure = on_failure
        """The loop calls this if a report raises."""
        self._calls: queue.SimpleQueue[
            tuple[Callable[..., Any], tuple[Any, ...], Callable[..., None]] | None
        ] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        """Start the thread.  Raises RuntimeError if the system allows no more threads."""
        self._thread.start()

    def submit(
        self, call: Callable[..., T], *args: Any, report: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `call(*args)` in the thread, then `report(result, error)` on the loop."""
        self._calls.put((call, args, report))

    def run(self, call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """As `submit`, with a future for the result."""
        future: asyncio.Future[T] = self._loop.create_future()

        def report(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.submit(call, *args, report=report)
        return future

    def stop(self) -> None:
        self._calls.put(None)
        if self.is_started:
            self._thread.join()

    def _run(self) -> None:
        while (task := self._calls.get()) is not None:
            call, args, report = task
            result = None
            failure: BaseException | None = None
            try:
                result = call(*args)
            except BaseException as error:  # noqa: BLE001 - outermost loop; the caller gets it
                failure = error
            self._loop.call_soon_threadsafe(self._deliver, report, result, failure)
            del task, call, args, report, result, failure

    def _deliver(self, report: Callable[..., None], result: Any, failure: BaseException | None) -> None:
        try:
            report(result, failure)
        except Exception as error:  # noqa: BLE001 - whatever it is, storage has lost its thread
            self._on_failure("applying what a thread has written", error)
