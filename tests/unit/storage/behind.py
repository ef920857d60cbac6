"""A store whose disk and clock are the test's, and whose write-behind can be made to wait."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from magnetar.storage.local.catalogue import Known, read_catalogue
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.segment_format import segment_name
from magnetar.testing.clock import FakeClock

from .conftest import SMALL
from .helpers import fill, pattern
from .seen_disk import SeenDisk

DATA = Path("/data")
SEGMENTS = DATA / "segments"
CATALOGUE = DATA / "catalogue"
SETTINGS = replace(SMALL, journal_file_count=8)  # so that no checkpoint begins by itself


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.disk = SeenDisk()

    @asynccontextmanager
    async def store(self, **changes: Any) -> AsyncIterator[LocalLedgerStore]:
        store = await LocalLedgerStore.start(
            DATA, settings=replace(SETTINGS, **changes), clock=self.clock, disk=self.disk
        )
        if store._preparing is not None:
            await store._preparing
        self.disk.synced.clear()
        try:
            yield store
        finally:
            await store.close()

    def noted(self) -> Known:
        """The catalogue that a loss of power would leave."""
        view = read_catalogue(memoryview(self.disk.durable(CATALOGUE)))
        assert view is not None
        return view.known

    def files(self) -> list[str]:
        return self.disk.names(SEGMENTS)

    def fail(self, path: str, kind: str, *numbers: int, code: int = 5) -> None:
        """The next calls of this kind on such a path, by their number from 1, fail."""
        self.disk.fail_path = path
        self.disk.calls.clear()
        self.disk.failures = {kind: dict.fromkeys(numbers, code)}

    def retries(self) -> int:
        """Timers that are set to try to write again."""
        return sum(
            getattr(timer.callback, "__name__", "") == "_try_again" and not timer.cancelled
            for _, _, timer in self.clock._timers
        )


def name_of(ledger: LocalLedger) -> str:
    return segment_name(ledger.ledger_id)


async def sent(ledger: LocalLedger, *sizes: int) -> None:
    """Entries with bodies of these sizes, all of them acknowledged."""
    await fill(ledger, [pattern(ledger.next_entry + number, size) for number, size in enumerate(sizes)])


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what is waited for is a step of the loop, or a thread's that sets no event
        await asyncio.sleep(0)


@contextmanager
def held(store: LocalLedgerStore) -> Iterator[None]:
    """The thread that writes behind carries nothing out meanwhile."""
    has_begun, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        has_begun.set()
        may_end.wait()

    store.behind.worker.submit(hold, report=lambda *_: None)
    has_begun.wait()
    try:
        yield
    finally:
        may_end.set()


async def settled(store: LocalLedgerStore) -> None:
    """The thread has carried out all that it was given."""
    await store.behind.worker.run(int)


def waiting_calls(store: LocalLedgerStore) -> int:
    """What the thread was given and has not begun."""
    return store.behind.worker._calls.qsize()
