"""The first start on a folder of an earlier version is killed, loses power or finds the disk full at any of its steps.

A later start of this version finds all that was acknowledged.  `tests/unit/storage/folders/version-1.tar.gz` is what
version 1 left when it was killed behind a checkpoint.
"""

import asyncio
import errno
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.errors import StorageError, StorageFull
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId
from magnetar.testing.disk import CrashDisk, Fate

DATA = Path("/data")
ARCHIVE = Path(__file__).parents[2] / "unit" / "storage" / "folders" / "version-1.tar.gz"
SETTINGS = LocalStoreSettings(
    journal_file_bytes=64 * 1024, journal_file_count=3, round_bytes_max=16 * 1024, flush_bytes=8 * 1024
)
EXPECTED = {
    ledger_id: [number.to_bytes(4, "big") * (25 + number % 7) for number in range(count)]
    for ledger_id, count in {1: 20, 2: 6, 4: 5}.items()
}


def old_folder() -> CrashDisk:
    """The folder, synced, on a disk of its own."""
    disk = CrashDisk()
    for name in ("", "journal", "segments", "leases"):
        disk.make_directory(DATA / name)
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            content = archive.extractfile(member)
            if content is not None:
                path = DATA / member.name
                file = disk.open(path, create=True)
                file.write(content.read(), 0)
                file.sync()
                file.close()
                disk.sync_directory(path.parent)
    disk.sync_directory(DATA)
    return disk


async def start(disk: CrashDisk) -> LocalLedgerStore:
    return await LocalLedgerStore.start(DATA, settings=SETTINGS, clock=SystemClock(), disk=disk)


async def check(store: LocalLedgerStore, *, beside: int = 0) -> None:
    """It has all that version 1 had acknowledged, and `beside` ledgers of its own; and it can be written."""
    found: dict[int, list[bytes]] = {}
    for stat in await store.list_ledgers():
        reader = await store.open(stat.ledger_id)
        bodies: list[bytes] = []
        while entries := await reader.read(EntryId(len(bodies)), 1 << 20):
            bodies += [bytes(one.body) for one in entries]
        found[int(stat.ledger_id)] = bodies
    own = {ledger_id: found.pop(ledger_id) for ledger_id in sorted(found) if ledger_id not in EXPECTED}
    assert found == EXPECTED
    assert list(own.values()).count([b"new"]) == beside
    assert all(bodies in ([], [b"new"]) for bodies in own.values())


async def write(store: LocalLedgerStore) -> None:
    """One ledger with one entry, acknowledged.  Raises StorageError."""
    writer = await store.create()
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(error: Exception | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    writer.append([b"new"], 3, 0, 0, report)
    await done


async def upgrade(disk: CrashDisk) -> int:
    """A start, one write and a clean stop, as far as the disk lets them; how many entries were acknowledged."""
    acknowledged = 0
    store = None
    try:
        store = await start(disk)
        await write(store)
        acknowledged = 1
        await store.checkpoint()
    except StorageError:
        pass  # as the disk has it
    finally:
        if store is not None:
            await store.close()
    return acknowledged


async def later_starts(disk: CrashDisk, acknowledged: int) -> None:
    for _ in range(2):
        store = await start(disk)
        # What was not acknowledged may be there nevertheless.
        stats = [one for one in await store.list_ledgers() if one.ledger_id not in EXPECTED]
        written = sum(one.entry_count for one in stats)
        assert written >= acknowledged
        await check(store, beside=written)
        await write(store)
        acknowledged = written + 1
        await store.close()


AFTER: dict[str, Callable[[CrashDisk, int], CrashDisk]] = {
    "a kill": lambda disk, seed: disk.after_kill(),
    **{
        f"a loss of power, unsynced writes {fate.value}": lambda disk, seed, fate=fate: (  # type: ignore[misc]
            disk.after_power_loss(fate, seed)
        )
        for fate in Fate
    },
}


@pytest.mark.crash
@pytest.mark.parametrize("after", AFTER)
def test_an_upgrade_that_ends_at_any_sync_is_taken_up_by_the_next_start(after: str) -> None:
    async def ends_at(sync_point: int) -> bool:
        """Whether it ended there."""
        disk = old_folder()
        before = disk.sync_points
        disk.power_off_at = before + sync_point
        acknowledged = await upgrade(disk)
        is_off = disk.sync_points >= before + sync_point
        await later_starts(AFTER[after](disk, sync_point), acknowledged)
        return is_off

    sync_point = 1
    while asyncio.run(ends_at(sync_point)):
        sync_point += 1
    assert sync_point > 8


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_upgrade_whose_disk_fails_at_any_call_is_taken_up_by_the_next_start(
    kind: str, number: int
) -> None:
    async def fails_at(call: int) -> bool:
        disk = old_folder()
        disk.calls.clear()
        disk.failures = {kind: {call: number}}
        acknowledged = await upgrade(disk)
        has_failed = disk.calls.get(kind, 0) >= call
        disk.failures = {}
        await later_starts(disk.after_kill(), acknowledged)
        return has_failed

    call = 1
    while asyncio.run(fails_at(call)):
        call += 1
    assert call > 3


@pytest.mark.crash
def test_an_upgrade_on_a_disk_without_room_says_so_and_goes_on_when_there_is_some() -> None:
    async def scenario() -> None:
        used = old_folder().bytes_used()
        refused = 0
        for room in range(0, 256 << 10, 4096):
            disk = old_folder()
            disk.capacity_bytes = used + room
            acknowledged = 0
            try:
                store = await start(disk)
            except StorageFull:
                refused += 1
            else:
                try:
                    await write(store)
                    acknowledged = 1
                except StorageFull:
                    refused += 1
                await store.close()
            disk.capacity_bytes = None
            await later_starts(disk, acknowledged)
        assert refused >= 1

    asyncio.run(scenario())
