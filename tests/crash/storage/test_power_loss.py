"""The power goes at every sync point of a scenario, and what was not synced is kept, dropped or torn.

After each of them: nothing acknowledged is lost, entries are dense and are what was appended, nothing is invented,
deleted ledgers stay deleted and no ledger id comes back.  Then the power goes again, during the recovery.
"""

import asyncio
import contextlib
import errno
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import LedgerFenced, LedgerNotFound, StorageError
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerId, LedgerWriter, StoredEntry
from magnetar.testing.clock import FakeClock, FakeTimer
from magnetar.testing.disk import CrashDisk, Fate
from tests.examples import seeds

DATA = Path("/data")
TINY = LocalStoreSettings(
    journal_file_bytes=64 * 1024,
    journal_file_count=3,
    round_bytes_max=16 * 1024,
    flush_bytes=8 * 1024,
    read_step_bytes=16 * 1024,
    checkpoint_entries_max=60,
)


def body_of(ledger_id: int, number: int) -> bytes:
    size = (number * 7919 + ledger_id * 31) % 3000 if number % 17 else 20_000
    seed = ledger_id.to_bytes(4, "big") + number.to_bytes(4, "big")
    return (seed * (size // 8 + 1))[:size]


@dataclass
class History:
    """What the store has acknowledged to the scenario."""

    appended: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    failed: dict[int, int] = field(default_factory=dict)
    delete_tried: set[int] = field(default_factory=set)
    deleted: set[int] = field(default_factory=set)

    def append(self, ledger: LedgerWriter, count: int) -> "list[asyncio.Future[None]]":
        futures = []
        ledger_id = int(ledger.stat.ledger_id)
        for _ in range(count):
            future = asyncio.get_running_loop().create_future()
            number = self.appended.setdefault(ledger_id, 0)
            body = body_of(ledger_id, number)

            def done(
                error: Exception | None,
                number: int = number,
                future: "asyncio.Future[None]" = future,
            ) -> None:
                if error is None:
                    assert self.acknowledged.get(ledger_id, 0) == number
                    self.acknowledged[ledger_id] = number + 1
                else:
                    self.failed.setdefault(ledger_id, number)
                future.set_result(None)

            ledger.append([body], len(body), number, number, done)
            self.appended[ledger_id] += 1
            futures.append(future)
        return futures


async def scenario(store: LocalLedgerStore, history: History) -> None:
    first, second, third = [await store.create() for _ in range(3)]
    for ledger in (first, second, third):
        history.acknowledged[ledger.ledger_id] = 0
    for turn in range(12):
        await asyncio.wait(history.append(first, 3) + history.append(second, 1 + turn % 5))
        if turn == 3:
            await asyncio.wait(history.append(third, 4))
            await second.seal()
            second = await store.create()
            history.acknowledged[second.ledger_id] = 0
        if turn == 6:
            history.delete_tried.add(third.ledger_id)
            await store.delete(third.ledger_id)
            history.deleted.add(third.ledger_id)
        if turn in (5, 9):
            await store.checkpoint()
    history.append(first, 2)


class Patience(FakeClock):
    """Sees the store plan to try a write again, which with the power gone is the moment to stop it."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = asyncio.Event()

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> FakeTimer:
        if getattr(callback, "__name__", "") == "_try_again":
            self.lost.set()
        return super().call_later(delay_s, callback, *args)


async def run(disk: CrashDisk, history: History) -> None:
    clock = Patience()
    try:
        store = await LocalLedgerStore.start(DATA, settings=TINY, clock=clock, disk=disk)
    except StorageError:
        return
    try:
        work = asyncio.ensure_future(scenario(store, history))
        lost = asyncio.ensure_future(clock.lost.wait())
        await asyncio.wait([work, lost], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await store.close()
    with contextlib.suppress(StorageError):
        await work
    lost.cancel()


async def check(disk: CrashDisk, history: History) -> None:
    store = await LocalLedgerStore.start(DATA, settings=TINY, clock=FakeClock(), disk=disk)
    try:
        found = {stat.ledger_id: stat.entry_count for stat in await store.list_ledgers()}
        for ledger_id in history.deleted:
            assert ledger_id not in found
            with pytest.raises(LedgerNotFound):
                await store.open(LedgerId(ledger_id))
        for ledger_id, acknowledged in history.acknowledged.items():
            if ledger_id in history.delete_tried:
                continue
            count = found[LedgerId(ledger_id)]
            assert acknowledged <= count <= history.appended.get(ledger_id, 0)
            assert count <= history.failed.get(ledger_id, count) or disk_was_off(history)
            reader = await store.open(LedgerId(ledger_id))
            entries: list[StoredEntry] = []
            while more := await reader.read(EntryId(len(entries)), 20_000):
                entries += more
            assert [(e.entry_id, bytes(e.body)) for e in entries] == [
                (n, body_of(ledger_id, n)) for n in range(count)
            ]
        left = {int(path.stem, 16) for path in disk.paths() if path.suffix == ".segment"}
        assert left <= set(found)
        fresh = await store.create()
        assert fresh.ledger_id > max(history.acknowledged, default=0)
        await asyncio.wait(History().append(fresh, 3))
        await store.open(fresh.ledger_id)
        with pytest.raises(LedgerFenced):
            History().append(fresh, 1)
    finally:
        await store.close()


def disk_was_off(history: History) -> bool:
    """With the power gone a failed write cannot be cut off, and may be found whole."""
    return bool(history.failed)


def sync_points() -> int:
    disk = CrashDisk()
    history = History()
    asyncio.run(run(disk, history))
    assert sum(history.acknowledged.values()) > 60
    asyncio.run(check(disk.after_power_loss(Fate.DROPPED), history))
    return disk.sync_points


def power_lost_at(point: int, *, direct: bool = True) -> tuple[CrashDisk, History]:
    """A scenario whose power goes at that sync point, and what had been acknowledged by then."""
    disk = CrashDisk(direct=direct)
    disk.power_off_at = point
    history = History()
    asyncio.run(run(disk, history))
    return disk, history


@pytest.mark.parametrize("direct", [True, False])
def test_power_loss_at_every_sync_point(direct: bool) -> None:
    for point in range(1, sync_points() + 1):
        disk, history = power_lost_at(point, direct=direct)
        for fate in Fate:
            try:
                asyncio.run(check(disk.after_power_loss(fate, seed=point), history))
            except BaseException as error:
                error.add_note(f"power lost at sync point {point}, unsynced writes {fate.value}")
                raise


@pytest.mark.parametrize("turn", seeds(1, 2))
def test_power_loss_again_during_recovery(turn: int) -> None:
    for point in range(5 + 4 * turn, sync_points(), 8):
        lost, history = power_lost_at(point)
        for fate in Fate:
            disk = lost
            for again in range(1, 9):
                disk = disk.after_power_loss(fate, seed=point * 100 + again)
                disk.power_off_at = again
                asyncio.run(run(disk, History()))
            try:
                asyncio.run(check(disk.after_power_loss(fate, seed=point), history))
            except BaseException as error:
                error.add_note(f"power lost at sync point {point} and 8 times since, writes {fate.value}")
                raise


async def go_on(disk: CrashDisk, history: History) -> None:
    """A start after a kill, and a few rounds, until the power goes."""
    with contextlib.suppress(StorageError):
        store = await LocalLedgerStore.start(DATA, settings=TINY, clock=FakeClock(), disk=disk)
        with contextlib.suppress(StorageError):
            for _ in range(6):
                ledger = await store.create()
                history.acknowledged[ledger.ledger_id] = 0
                await asyncio.wait(history.append(ledger, 1))
        await store.close()


@pytest.mark.parametrize("turn", seeds(1, 2))
@pytest.mark.parametrize("direct", [True, False])
def test_power_loss_soon_after_a_kill_between_a_write_and_its_sync(direct: bool, turn: int) -> None:
    for point in range(1 + 5 * turn, sync_points() + 1, 10):
        killed, before = power_lost_at(point, direct=direct)
        for again in range(2, 10):
            disk, history = killed.after_kill(), deepcopy(before)
            disk.power_off_at = again
            asyncio.run(go_on(disk, history))
            for fate in (Fate.DROPPED, Fate.TORN):
                try:
                    asyncio.run(check(disk.after_power_loss(fate, seed=point), history))
                except BaseException as error:
                    error.add_note(
                        f"killed in sync point {point}, and the power went in the {again}th after that, "
                        f"unsynced writes {fate.value}"
                    )
                    raise


@pytest.mark.parametrize("direct", [True, False])
def test_power_loss_takes_no_ledger_that_a_caller_knows_of_without_syncing_either(direct: bool) -> None:
    """Its place in a chain is synced, and a chain whose ledgers are missing is refused."""

    async def load(disk: CrashDisk, history: History) -> None:
        settings = replace(TINY, journal_sync_data=False, checkpoint_entries_max=1000)
        store = await LocalLedgerStore.start(DATA, settings=settings, clock=FakeClock(), disk=disk)
        first = await store.create()
        await asyncio.wait(history.append(first, 25))  # into the second file
        second = await store.create()
        await asyncio.wait(history.append(second, 1))
        await store.delete(first.ledger_id)
        lost = disk.after_power_loss(Fate.DROPPED)
        await store.close()
        store = await LocalLedgerStore.start(DATA, settings=settings, clock=FakeClock(), disk=lost)
        assert [stat.ledger_id for stat in await store.list_ledgers()] == [second.ledger_id]
        await store.close()

    asyncio.run(load(CrashDisk(direct=direct), History()))


@pytest.mark.parametrize("direct", [True, False])
def test_a_sync_that_failed_takes_no_ledger_that_a_caller_knows_of_without_syncing_either(
    direct: bool,
) -> None:
    """What the sync was to keep may be lost, and a later ledger's creation behind it would be lost with it."""

    async def load(disk: CrashDisk) -> None:
        settings = replace(TINY, journal_sync_data=False, checkpoint_entries_max=1000)
        store = await LocalLedgerStore.start(DATA, settings=settings, clock=FakeClock(), disk=disk)
        first = await store.create()
        known = [first.ledger_id]
        await asyncio.wait(History().append(first, 5))
        disk.fail_path = "0000.journal"
        disk.calls.clear()
        disk.failures = {"sync": {1: errno.EIO}}
        refused = []
        for _ in range(3):
            try:
                known.append((await store.create()).ledger_id)
            except StorageError as error:
                refused.append(error)
        problem = store.problem or ""
        lost = disk.after_power_loss(Fate.DROPPED)
        await store.close()
        store = await LocalLedgerStore.start(DATA, settings=settings, clock=FakeClock(), disk=lost)
        assert [stat.ledger_id for stat in await store.list_ledgers()] == known
        await store.close()
        assert len(refused) == 3
        assert "nothing can be written; see to the disk" in problem

    asyncio.run(load(CrashDisk(direct=direct)))
