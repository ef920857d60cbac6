"""Readers that begin at the same place share what the first of them reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.storage.local.first_steps import STEPS_MAX, FirstSteps
from magnetar.storage.local.segment import Chunk, Damaged, Stretch
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerId, LedgerReader, StoredEntry

from .conftest import SMALL
from .helpers import bodies_of, fill, in_a_loop, pattern

BODIES = [pattern(number, 1000) for number in range(1000)]
COST = 100


class Loads:
    """A disk whose reads end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[Chunk]] = []

    def __call__(self, stretch: Stretch) -> asyncio.Future[Chunk]:
        future: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        self.begun.append(future)
        return future


def stretch(first: int, end: int) -> Stretch:
    return Stretch(first, end, first * 10, end * 10, [])


def chunk(first: int, end: int, damaged: int | None = None) -> Chunk:
    entries: list[StoredEntry | Damaged] = [
        Damaged(number, None, None)
        if number == damaged
        else StoredEntry(EntryId(number), number, 0, memoryview(b""))
        for number in range(first, end)
    ]
    return Chunk(first, end, first * 10, end * 10, entries)


class Sharing:
    def __init__(self, bytes_max: int = 10 * COST) -> None:
        self.steps = FirstSteps(bytes_max)
        self.loads = Loads()

    def ask(self, first: int, end: int, *, entry: int | None = None, ledger: int = 1) -> asyncio.Task[Chunk]:
        return asyncio.ensure_future(
            self.steps.load(ledger, first if entry is None else entry, stretch(first, end), COST, self.loads)
        )

    async def read(self, first: int, end: int, *, ledger: int = 1) -> bool:
        """Whether the disk was read for it."""
        before = len(self.loads.begun)
        asking = self.ask(first, end, ledger=ledger)
        await asyncio.sleep(0)
        was_read = len(self.loads.begun) > before
        if was_read:
            self.loads.begun[-1].set_result(chunk(first, end))
        assert (await asking).first == first
        return was_read


@in_a_loop
async def test_one_read_serves_those_that_come_while_it_is_under_way_and_later() -> None:
    sharing = Sharing()
    waiting = [sharing.ask(0, 8), sharing.ask(0, 4), sharing.ask(0, 8, entry=7)]
    await asyncio.sleep(0)
    (load,) = sharing.loads.begun
    load.set_result(whole := chunk(0, 8))
    assert [await one is whole for one in waiting] == [True] * 3
    assert await sharing.ask(0, 8) is whole
    assert len(sharing.loads.begun) == 1


@in_a_loop
async def test_a_step_that_ends_before_the_entry_is_read_anew() -> None:
    sharing = Sharing()
    assert await sharing.read(0, 4)
    longer = sharing.ask(0, 8, entry=4)
    await asyncio.sleep(0)
    sharing.loads.begun[-1].set_result(chunk(0, 8))
    assert (await longer).end == 8
    assert not await sharing.read(0, 8)


@in_a_loop
async def test_a_reader_that_is_cancelled_leaves_the_step_to_the_others() -> None:
    sharing = Sharing()
    gone, stays = sharing.ask(0, 8), sharing.ask(0, 8)
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert gone.cancelled()
    sharing.loads.begun[0].set_result(chunk(0, 8))
    assert (await stays).end == 8


@in_a_loop
async def test_what_failed_is_raised_to_all_who_wait_and_read_anew_by_the_next() -> None:
    sharing = Sharing()
    waiting = [sharing.ask(0, 8), sharing.ask(0, 8)]
    await asyncio.sleep(0)
    sharing.loads.begun[0].set_exception(StorageError("no"))
    for one in waiting:
        with pytest.raises(StorageError):
            await one
    assert await sharing.read(0, 8)


@in_a_loop
async def test_what_is_damaged_is_read_anew() -> None:
    sharing = Sharing()
    asking = sharing.ask(0, 8)
    await asyncio.sleep(0)
    sharing.loads.begun[0].set_result(chunk(0, 8, damaged=5))
    await asking
    assert await sharing.read(0, 8)


@in_a_loop
async def test_the_step_used_last_stays_longest() -> None:
    sharing = Sharing(bytes_max=2 * COST)
    for first in (0, 10):
        assert await sharing.read(first, first + 1)
    assert not await sharing.read(0, 1)
    assert await sharing.read(20, 21)
    assert not await sharing.read(0, 1)
    assert await sharing.read(10, 11)


@in_a_loop
async def test_one_step_stays_however_large_it_is() -> None:
    sharing = Sharing(bytes_max=COST - 1)
    assert await sharing.read(0, 8)
    assert not await sharing.read(0, 8)


@in_a_loop
async def test_there_are_few_steps_however_small_they_are() -> None:
    sharing = Sharing(bytes_max=1 << 30)
    for first in range(STEPS_MAX + 1):
        assert await sharing.read(first, first + 1)
    assert not await sharing.read(1, 2)
    assert await sharing.read(0, 1)


@in_a_loop
async def test_a_deleted_ledger_leaves_nothing_behind() -> None:
    sharing = Sharing()
    assert await sharing.read(0, 8, ledger=1)
    assert await sharing.read(0, 8, ledger=2)
    sharing.steps.forget(1)
    assert not await sharing.read(0, 8, ledger=2)
    assert await sharing.read(0, 8, ledger=1)


@asynccontextmanager
async def stored(folder: Path) -> AsyncIterator[tuple[LocalLedgerStore, LedgerReader, LedgerId]]:
    """A store with `BODIES` in a segment, started anew."""
    store = await LocalLedgerStore.start(folder, settings=SMALL, clock=SystemClock())
    writer = await store.create()
    await fill(writer, BODIES)
    await store.close()
    store = await LocalLedgerStore.start(folder, settings=SMALL, clock=SystemClock())
    try:
        yield store, await store.open(writer.ledger_id), writer.ledger_id
    finally:
        await store.close()


def reads_of(store: LocalLedgerStore) -> int:
    return store.counters.disk_reads


@in_a_loop
async def test_consumers_that_begin_together_read_the_disk_once(tmp_path: Path) -> None:
    async with stored(tmp_path) as (store, reader, _):
        before = reads_of(store)
        found = await asyncio.gather(*(reader.read(EntryId(number % 3), 1) for number in range(30)))
        assert [bytes(entries[0].body) for entries in found] == [BODIES[number % 3] for number in range(30)]
        assert reads_of(store) == before + 1
        assert await bodies_of(reader) == BODIES


@in_a_loop
async def test_a_lookup_has_read_what_the_read_of_its_entry_wants(tmp_path: Path) -> None:
    async with stored(tmp_path) as (store, reader, _):
        before = reads_of(store)
        found = await reader.entry_for_offset(777 * 10 + 5)
        assert found == 777
        assert bytes((await reader.read(found, 1))[0].body) == BODIES[777]
        assert reads_of(store) == before + 1


@in_a_loop
async def test_a_deleted_ledger_is_not_read_from_what_was_kept(tmp_path: Path) -> None:
    async with stored(tmp_path) as (store, reader, ledger_id):
        await reader.read(EntryId(0), 1)
        await store.delete(ledger_id)
        with pytest.raises(LedgerNotFound):
            await reader.read(EntryId(0), 1)


@in_a_loop
async def test_damage_is_found_as_long_as_it_is_there(tmp_path: Path) -> None:
    async with stored(tmp_path) as (_, reader, _):
        await reader.read(EntryId(0), 1)
        (segment,) = (path for path in (tmp_path / "segments").iterdir() if path.suffix != ".tmp")
        whole = segment.read_bytes()
        place = whole.index(BODIES[500])
        damaged = bytearray(whole)
        damaged[place] ^= 1
        segment.write_bytes(damaged)
        with pytest.raises(EntryCorrupt):
            await reader.read(EntryId(500), 1)
        segment.write_bytes(whole)
        assert bytes((await reader.read(EntryId(500), 1))[0].body) == BODIES[500]
