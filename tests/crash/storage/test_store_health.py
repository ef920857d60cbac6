"""What a store says of itself while its disk hangs or is full."""

import asyncio
from dataclasses import replace

import pytest

from magnetar.base.errors import LedgerFenced, StorageError
from magnetar.storage.local.health import CHECKPOINT_S_MAX, WRITE_S_MAX
from magnetar.storage.local.journal import MARK_S
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.local.writebehind import WriteBehind
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk
from tests.crash.storage.written_store import DATA, TINY, Producer, start, until


def test_what_hangs_or_is_full_is_told() -> None:
    async def scenario() -> None:
        disk, clock = CrashDisk(), FakeClock()
        store = await start(disk, clock)
        producer = Producer(await store.create())
        await producer.send()
        assert store.problem is None

        disk.capacity_bytes = disk.bytes_used()
        with pytest.raises(StorageError):
            await store.checkpoint()
        store.behind.checkpoint_soon()
        await until(lambda: store.behind.stuck)
        assert "segments cannot be written" in (store.problem or "")
        disk.capacity_bytes = None
        await store.checkpoint()
        assert store.problem is None

        with disk._lock:  # the disk does not answer
            sent = producer.send()
            await until(lambda: store.journal.write_began_s is not None)
            clock.advance(WRITE_S_MAX)
            assert "has not returned" in (store.problem or "")
        await sent
        assert store.problem is None

        for _ in range(3):  # the round is followed by an empty one, which is not to be under way below
            clock.advance(MARK_S)
            await until(lambda: store.journal._rests)
        with disk._lock:
            checkpoint = asyncio.ensure_future(store.checkpoint())
            await until(lambda: store.behind.wanted_since_s is not None)
            clock.advance(CHECKPOINT_S_MAX)
            assert "a checkpoint has not ended" in (store.problem or "")
        await checkpoint
        assert store.problem is None

        disk.fail_path = "segments"
        disk.calls.clear()
        disk.failures["sync"] = {1: 5}
        await producer.send()
        with pytest.raises(StorageError):
            await store.checkpoint()
        assert "could not be synced" in (store.problem or "")
        with pytest.raises(LedgerFenced):
            producer.send()
        await store.close()

    asyncio.run(scenario())


def test_a_full_journal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        store = await LocalLedgerStore.start(
            DATA, settings=replace(TINY, journal_file_count=2), clock=clock, disk=CrashDisk()
        )
        producer = Producer(await store.create())
        monkeypatch.setattr(WriteBehind, "checkpoint_soon", lambda self: None)
        waiting = [producer.send() for _ in range(200)]
        await until(lambda: store.journal.full_since_s is not None)
        clock.advance(WRITE_S_MAX)
        assert "room in the journal" in (store.problem or "")
        monkeypatch.undo()
        while not all(answered.done() for answered in waiting):
            await store.checkpoint()
            store.behind.checkpoint_soon()
        assert store.problem is None
        assert producer.acknowledged == 200
        await store.close()

    asyncio.run(scenario())
