"""What is kept of segments that were read, for readers that may never come back."""

import asyncio
import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path

from magnetar.base.clock import SystemClock
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId

from .conftest import KIB, SMALL
from .helpers import bodies_of, fill, pattern

READ_MEMORY_BYTES = 256 * KIB
READERS = 30


def test_readers_that_do_not_come_back_leave_little_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = replace(SMALL, read_memory_bytes=READ_MEMORY_BYTES)
        bodies = [pattern(number, 40) for number in range(READERS * 400)]
        store = await LocalLedgerStore.start(tmp_path, settings=settings, clock=SystemClock())
        writer = await store.create()
        ledger_id = writer.ledger_id
        for begin in range(0, len(bodies), 2000):
            await fill(writer, bodies[begin : begin + 2000])
        await store.close()

        store = await LocalLedgerStore.start(tmp_path, settings=settings, clock=SystemClock())
        reader = await store.open(ledger_id)
        await reader.read(EntryId(0), 100)
        tracemalloc.start()
        try:
            for number in range(READERS):
                found = await reader.read(EntryId(number * 400), 100)
                assert bytes(found[0].body) == bodies[number * 400]
            del found
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 2 * READ_MEMORY_BYTES
        assert await bodies_of(reader, 2_000) == bodies
        await store.close()

    asyncio.run(scenario())
