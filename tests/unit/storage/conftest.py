"""Stores to test: every implementation and mode behind one fixture."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import SystemClock
from magnetar.storage.local.disk import RealDisk
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore

KIB = 1024

SMALL = LocalStoreSettings(
    journal_file_bytes=256 * KIB,
    journal_file_count=3,
    round_bytes_max=64 * KIB,
    flush_bytes=64 * KIB,
    read_step_bytes=64 * KIB,
    checkpoint_entries_max=500,
)

Starter = Callable[[], AbstractAsyncContextManager[LocalLedgerStore]]


class BufferedDisk(RealDisk):
    """The machine's disk as it looks where direct I/O is refused."""

    def can_direct(self, directory: Path) -> bool:
        return False


@pytest.fixture(params=["direct", "buffered", "unsynced"])
def start_store(request: pytest.FixtureRequest, tmp_path: Path) -> Starter:
    """Starts the store of this test, again and again on the same directory."""
    mode = request.param
    disk = RealDisk() if mode == "direct" else BufferedDisk()
    if mode == "direct" and not disk.can_direct(tmp_path):
        pytest.skip(f"no direct I/O in {os.fspath(tmp_path)}")
    settings = SMALL
    if mode == "unsynced":
        settings = LocalStoreSettings(
            **{name: getattr(SMALL, name) for name in SMALL.__slots__ if name != "journal_sync_data"},
            journal_sync_data=False,
        )

    @asynccontextmanager
    async def start() -> AsyncIterator[LocalLedgerStore]:
        store = await LocalLedgerStore.start(tmp_path, settings=settings, clock=SystemClock(), disk=disk)
        try:
            yield store
        finally:
            await store.close()

    return start
