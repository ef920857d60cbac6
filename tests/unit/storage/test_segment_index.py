"""The index of a finished segment: from its footer when that is whole and right, from its records when it is not."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.recovery import load_index
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk

from .conftest import SMALL
from .helpers import fill, pattern

DATA = Path("/data")


class Finished:
    """A ledger whose segment has its footer, and what is read of its index."""

    def __init__(self, store: LocalLedgerStore, disk: CrashDisk, ledger_id: int) -> None:
        ledger = store.find(ledger_id)
        assert ledger is not None
        assert ledger.finished
        assert ledger.index is not None
        self.store = store
        self.ledger = ledger
        self.points = ledger.index.to_bytes(0, len(ledger.index))
        self.path = store.path_of(ledger)
        self.content = disk.content(self.path)

    def index(self, count: int | None = None) -> bytes:
        ledger = self.ledger
        entries = ledger.flushed_count if count is None else count
        index = load_index(self.store.reads, self.path, ledger.ledger_id, entries, ledger.flushed_position)
        return index.to_bytes(0, len(index))


def with_finished(entries: int, look: Callable[[Finished, CrashDisk], None]) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await LocalLedgerStore.start(DATA, settings=SMALL, clock=FakeClock(), disk=disk)
        ledger = await store.create()
        await fill(ledger, [pattern(number, 9000) for number in range(entries)])
        await ledger.seal()
        await store.checkpoint()
        look(Finished(store, disk, ledger.ledger_id), disk)
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("entries", [1, 2, 30])
def test_an_index_is_read_from_the_footer_or_made_from_the_records(entries: int) -> None:
    def look(segment: Finished, _: CrashDisk) -> None:
        assert len(segment.points) > 0
        assert segment.index() == segment.points
        assert segment.index(count=entries + 1) == segment.points, (
            "the footer of other totals is not believed"
        )
        segment.content[-1] ^= 1
        assert segment.index() == segment.points

    with_finished(entries, look)


def test_a_whole_footer_is_believed_without_reading_the_records() -> None:
    def look(segment: Finished, _: CrashDisk) -> None:
        segment.content[:BLOCK_BYTES] = bytes(BLOCK_BYTES)
        assert segment.index() == segment.points

    with_finished(30, look)


def test_a_segment_without_an_index_is_an_error_that_says_why() -> None:
    def look(segment: Finished, disk: CrashDisk) -> None:
        segment.content[:BLOCK_BYTES] = segment.content[-BLOCK_BYTES:] = bytes(BLOCK_BYTES)
        with pytest.raises(EntryCorrupt, match="neither a footer nor records"):
            segment.index()
        disk.fail_path = segment.path.name
        disk.calls.clear()
        disk.failures["read"] = {1: 5}
        with pytest.raises(StorageError, match="ledger 1 cannot be read: EIO"):
            segment.index()
        segment.store.reads.files.forget(segment.path)
        disk.remove(segment.path)
        with pytest.raises(LedgerNotFound, match="the segment of ledger 1 is gone"):
            segment.index()

    with_finished(1, look)
