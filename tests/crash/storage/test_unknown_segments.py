"""A start removes the segments of ledgers that are known to be deleted, and no other file."""

import asyncio
from pathlib import Path

import pytest

from magnetar.base.errors import StorageError
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.segment_format import segment_name
from magnetar.storage.store import EntryId
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, Fate
from magnetar.wire.stored import RECORD_BYTES

DATA = Path("/data")
SEGMENTS = DATA / "segments"
SMALL = LocalStoreSettings(journal_file_bytes=64 << 10, journal_file_count=4, round_bytes_max=16 << 10)


async def start(disk: CrashDisk) -> LocalLedgerStore:
    return await LocalLedgerStore.start(DATA, settings=SMALL, clock=FakeClock(), disk=disk)


async def with_ledgers(store: LocalLedgerStore, count: int) -> None:
    for _ in range(count):
        ledger = await store.create()
        done = asyncio.get_running_loop().create_future()
        ledger.append([b"x" * 100], 100, 0, 0, done.set_result)
        assert await done is None
    await store.checkpoint()


def leave(disk: CrashDisk, ledger_id: int) -> Path:
    """A segment that appears from elsewhere, such as from a copy of the folder."""
    path = SEGMENTS / segment_name(ledger_id)
    disk.open(path, create=True).write(b"another store's data", 0)
    disk.sync_directory(SEGMENTS)
    return path


def test_a_segment_that_no_ledger_has_stays_unless_its_ledger_is_known_to_be_deleted() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        await with_ledgers(store, 3)
        ids = [stat.ledger_id for stat in await store.list_ledgers()]
        await store.delete(ids[1])
        await store.checkpoint()
        await store.close()
        deleted = leave(disk, ids[1])  # its removal was not synced, and the power went
        unknown = leave(disk, 0)  # ids begin at 1: it was never made, and is below the next one
        for _ in range(3):
            store = await start(disk)
            assert deleted not in disk.paths()
            await with_ledgers(store, 1)
            await store.close()
            assert bytes(disk.content(unknown)) == b"another store's data"

    asyncio.run(scenario())


def test_a_new_ledger_does_not_get_the_id_of_an_unknown_segment() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        await with_ledgers(store, 1)
        (last,) = (stat.ledger_id for stat in await store.list_ledgers())
        await store.close()
        unknown = [leave(disk, last + 1), leave(disk, last + 3), leave(disk, 2**64 - 1)]
        for _ in range(2):
            store = await start(disk)
            await with_ledgers(store, 3)
            await store.close()
            for path in unknown:
                assert bytes(disk.content(path)) == b"another store's data"
        store = await start(disk.after_power_loss(Fate.DROPPED))
        for stat in await store.list_ledgers():
            (entry,) = await (await store.open(stat.ledger_id)).read(EntryId(0), 1000)
            assert bytes(entry.body) == b"x" * 100
        await store.close()

    asyncio.run(scenario())


def exchange(disk: CrashDisk, one: Path, other: Path) -> None:
    beside = SEGMENTS / "beside"
    for old, new in ((one, beside), (other, one), (beside, other)):
        disk.rename(old, new)
    disk.sync_directory(SEGMENTS)


@pytest.mark.parametrize("later", [0, 10])
@pytest.mark.parametrize("size", [100, 4096 - RECORD_BYTES])
def test_nothing_is_written_to_segments_that_were_exchanged(later: int, size: int) -> None:
    async def append(writer: LocalLedger, begin: int, count: int) -> None:
        for number in range(begin, begin + count):
            done = asyncio.get_running_loop().create_future()
            body = (b"%d " % writer.ledger_id * size)[:size]
            writer.append([body], size, number, 0, done.set_result)
            assert await done is None

    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        writers = [await store.create() for _ in range(2)]
        for writer, count in zip(writers, (3, 30), strict=True):
            await append(writer, 0, count)
        await store.checkpoint()
        await append(writers[0], 3, later)
        paths = [SEGMENTS / segment_name(writer.ledger_id) for writer in writers]
        disk = disk.after_power_loss(Fate.KEPT)  # a copy
        await store.close()
        exchange(disk, *paths)
        store = await start(disk)
        for writer in writers:
            await (await store.open(writer.ledger_id)).seal()
        with pytest.raises(StorageError, match="has the entries of ledger" if not later else None):
            await store.checkpoint()
        await store.close()
        exchange(disk, *paths)
        store = await start(disk)
        for writer, count in zip(writers, (3 + later, 30), strict=True):
            reader = await store.open(writer.ledger_id)
            found: list[bytes] = []
            while len(found) < count:
                found += [bytes(one.body) for one in await reader.read(EntryId(len(found)), 1 << 20)]
            assert found == [(b"%d " % writer.ledger_id * size)[:size]] * count
        assert store.problem is None
        await store.close()

    asyncio.run(scenario())
