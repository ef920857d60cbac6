"""Full disks and failing calls: what cannot be written is refused or reported, and nothing acknowledged is lost."""

import asyncio
import errno
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import EntryCorrupt, LedgerFenced, StorageError, StorageFull
from magnetar.storage.local.settings import LocalStoreSettings
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId, LedgerReader, LedgerWriter
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk, CrashFile, Fate

DATA = Path("/data")
KIB = 1024
TINY = LocalStoreSettings(
    journal_file_bytes=64 * KIB,
    journal_file_count=3,
    round_bytes_max=16 * KIB,
    flush_bytes=8 * KIB,
    read_step_bytes=16 * KIB,
    checkpoint_entries_max=60,
)


def body(number: int) -> bytes:
    return number.to_bytes(4, "big") * 500


MORE_FILES = replace(TINY, journal_file_count=5)


async def start(
    disk: CrashDisk, clock: FakeClock | None = None, settings: LocalStoreSettings = TINY
) -> LocalLedgerStore:
    return await LocalLedgerStore.start(DATA, settings=settings, clock=clock or FakeClock(), disk=disk)


class Producer:
    """Appends numbered bodies to one ledger, and knows what became of each."""

    def __init__(self, ledger: LedgerWriter) -> None:
        self.ledger = ledger
        self.acknowledged = 0
        self.errors: list[Exception] = []
        self.sent = 0

    def send(self) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if error is None:
                assert not self.errors, "an entry behind a failed one was acknowledged"
                self.acknowledged += 1
            else:
                self.errors.append(error)
            future.set_result(None)

        data = body(self.sent)
        self.ledger.append([data], len(data), self.sent, self.sent, done)
        self.sent += 1
        return future


async def send_until_refused(producer: Producer) -> None:
    """Send one by one until an entry is refused or, queued before that was known, fails: no answer stays out."""
    for _ in range(2000):
        try:
            sent = producer.send()
        except StorageFull:
            return
        await asyncio.wait_for(sent, 5)
        if producer.errors:
            assert isinstance(producer.errors[0], StorageFull)
            return
    pytest.fail("nothing was refused")


async def numbers(ledger: LedgerReader) -> list[int]:
    found: list[int] = []
    while entries := await ledger.read(EntryId(len(found)), 20 * KIB):
        for entry in entries:
            assert bytes(entry.body) == body(entry.last_offset)
            found.append(entry.last_offset)
    return found


def test_a_disk_too_small_for_the_journal_is_reported_at_start() -> None:
    async def scenario() -> None:
        with pytest.raises(StorageFull):
            await start(CrashDisk(capacity_bytes=20 * KIB))

    asyncio.run(scenario())


@pytest.mark.parametrize("room", range(0, 60, 4))
def test_a_full_disk_refuses_before_queueing_and_writing_resumes(room: int) -> None:
    async def scenario() -> None:
        disk, clock = CrashDisk(), FakeClock()
        store = await start(disk, clock)
        producer = Producer(await store.create())
        await producer.send()
        await store.checkpoint()
        disk.capacity_bytes = disk.bytes_used() + room * KIB
        await send_until_refused(producer)
        assert await numbers(producer.ledger) == list(range(producer.acknowledged))
        with pytest.raises(StorageFull):
            await store.create()
        disk.capacity_bytes = None
        clock.advance(TINY.retry_s)
        await store.checkpoint()
        producers = [producer]
        if producer.errors:
            with pytest.raises(LedgerFenced):
                producer.send()
            producers.append(Producer(await store.create()))
        for _ in range(100):
            await producers[-1].send()
        assert producers[-1].errors == []
        await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        for each in producers:
            reader = await store.open(each.ledger.stat.ledger_id)
            assert await numbers(reader) == list(range(each.acknowledged))
        await store.close()

    asyncio.run(scenario())


def test_a_disk_that_stalls_shows_in_the_times_and_is_told_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    stalls = [0.0004, 1.5, 2.0, 0.3]
    write = CrashFile.write

    def slow(file: CrashFile, data: bytes, position: int) -> None:
        if stalls and threading.current_thread().name == "magnetar-journal":
            clock._elapsed_s += stalls.pop(0)  # without the timers, which are the loop's
        write(file, data, position)

    async def scenario() -> None:
        store = await start(CrashDisk(), clock)
        producer = Producer(await store.create())
        before = store.counters.journal_write_s.sum
        monkeypatch.setattr(CrashFile, "write", slow)
        while stalls:
            await producer.send()
        times = store.counters.journal_write_s
        assert times.sum - before == pytest.approx(3.8004)
        slowest = {bound: times.counts[place] for place, bound in enumerate(times.bounds) if bound > 0.1}
        assert slowest == {0.25: 0, 0.5: 1, 1.0: 0, 2.5: 2, 10.0: 0}
        assert sum(times.counts) == store.counters.rounds
        stalls.append(1.25)
        clock._elapsed_s += 60
        await producer.send()
        await store.close()

    asyncio.run(scenario())
    said = [record.message for record in caplog.records if "journal write" in record.message]
    assert [line.partition(" for")[0] for line in said] == ["the disk took 1.5 s", "the disk took 1.2 s"]


def test_what_is_queued_when_the_journal_fills_up_fails_soon_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        disk, clock = CrashDisk(), FakeClock()
        store = await start(disk, clock)
        first, second = Producer(await store.create()), Producer(await store.create())
        idle = Producer(await store.create())
        await idle.send()
        disk.capacity_bytes = disk.bytes_used()
        # Queued in one go: the store does not know yet that segments cannot grow, and the journal has not room for half
        # of it.
        waiting = [producer.send() for _ in range(100) for producer in (first, second)]
        created = asyncio.ensure_future(store.create())
        every: list[asyncio.Future[Any]] = [*waiting, created]
        answered, late = await asyncio.wait(every, timeout=5)
        assert (len(answered), len(late)) == (201, 0)
        assert isinstance(created.exception(), StorageFull)
        for producer in (first, second):
            assert 0 < producer.acknowledged < 100
            assert {type(error) for error in producer.errors} == {StorageFull}
            assert await numbers(producer.ledger) == list(range(producer.acknowledged))
        disk.capacity_bytes = None
        clock.advance(TINY.retry_s)
        await store.checkpoint()
        again = Producer(await store.create())
        await asyncio.wait([again.send(), idle.send()])
        assert (again.acknowledged, idle.acknowledged) == (1, 2)
        dead = disk.after_power_loss(Fate.KEPT)
        await store.close()
        store = await start(dead)
        for producer in (first, second, idle, again):
            reader = await store.open(producer.ledger.stat.ledger_id)
            assert await numbers(reader) == list(range(producer.acknowledged))
        await store.close()

    asyncio.run(scenario())


def test_closing_with_a_full_disk_ends_and_loses_nothing() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producer = Producer(await store.create())
        await producer.send()
        disk.capacity_bytes = disk.bytes_used()
        waiting = [producer.send() for _ in range(400)]
        await store.close()
        await asyncio.wait(waiting)
        assert 0 < producer.acknowledged < producer.sent
        assert len(producer.errors) == producer.sent - producer.acknowledged
        disk.capacity_bytes = None
        store = await start(disk.after_power_loss(Fate.DROPPED))
        reader = await store.open(producer.ledger.stat.ledger_id)
        assert await numbers(reader) == list(range(producer.acknowledged))
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("fate", list(Fate))
@pytest.mark.parametrize("call", range(1, 12))
def test_a_failed_journal_write_fences_its_ledgers_and_the_store_goes_on(call: int, fate: Fate) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk, settings=MORE_FILES)
        await store.close()  # with all files of the ring made
        store = await start(disk, settings=MORE_FILES)
        first, other = Producer(await store.create()), Producer(await store.create())
        idle = Producer(await store.create())
        await idle.send()
        disk.fail_path = "journal"
        disk.calls.clear()
        disk.failures["write"] = {call: errno.EIO}
        for _ in range(call):
            if not (first.errors or other.errors):
                await asyncio.wait([first.send(), other.send(), first.send()])
        failed = [producer for producer in (first, other) if producer.errors]
        assert failed
        for producer in failed:
            with pytest.raises(LedgerFenced):
                producer.send()
            stat = await producer.ledger.seal()
            assert stat.entry_count == producer.acknowledged
            assert await numbers(producer.ledger) == list(range(producer.acknowledged))
        await idle.send()
        again = Producer(await store.create())
        for _ in range(20):
            await again.send()
        assert again.acknowledged == 20
        assert idle.acknowledged == 2
        await store.close()
        store = await start(disk.after_power_loss(fate, seed=call), settings=MORE_FILES)
        for producer in (first, other, idle, again):
            reader = await store.open(producer.ledger.stat.ledger_id)
            assert await numbers(reader) == list(range(producer.acknowledged))
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["write", "sync", "read"])
@pytest.mark.parametrize("path", ["segment", "catalogue"])
@pytest.mark.parametrize("call", range(1, 6))
def test_a_failed_call_on_segments_or_catalogue_loses_nothing(kind: str, path: str, call: int) -> None:
    async def scenario() -> None:
        disk, clock = CrashDisk(), FakeClock()
        store = await start(disk, clock)
        producers = [Producer(await store.create()) for _ in range(3)]
        disk.fail_path = path
        disk.calls.clear()
        disk.failures[kind] = {call: errno.EIO}
        for _ in range(40):
            for producer in producers:
                try:
                    waiting = producer.send()
                except StorageError:
                    clock.advance(TINY.retry_s)
                    continue
                await asyncio.wait_for(waiting, 5)
            clock.advance(TINY.retry_s)
        for producer in producers:
            try:
                found = await numbers(producer.ledger)
            except StorageError:
                assert kind == "read"
                found = await numbers(producer.ledger)
            assert found == list(range(producer.acknowledged))
            # This journal is so small that it may be full before the store tries again.
            assert all(isinstance(error, StorageFull) for error in producer.errors)
        await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        for producer in producers:
            reader = await store.open(producer.ledger.stat.ledger_id)
            assert await numbers(reader) == list(range(producer.acknowledged))
        await store.close()

    asyncio.run(scenario())


def flip(data: bytearray, position: int) -> None:
    data[position] ^= 0x40


@pytest.mark.parametrize("field", [0, 4, 8, 16, 24, 32, 40, 1999])
def test_damage_in_a_segment_is_found_and_never_served(field: int) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producer = Producer(await store.create())
        for _ in range(60):
            await producer.send()
        await producer.ledger.seal()
        await store.checkpoint()
        path = next(path for path in disk.paths() if path.suffix == ".segment")
        bad = 25
        flip(disk.content(path), bad * 2040 + field)
        assert [e.entry_id for e in await producer.ledger.read(EntryId(20), 1 << 20)] == list(range(20, bad))
        with pytest.raises(EntryCorrupt):
            await producer.ledger.read(EntryId(bad), 1 << 20)
        assert store.counters.corrupt_entries > 0
        # What lies behind the damage can be read: at once if only the body is bad, else from the next index point.
        behind = bad + 1 if field >= 24 or field == 4 else 51
        entries = await producer.ledger.read(EntryId(behind), 1 << 20)
        assert [e.entry_id for e in entries] == list(range(behind, 60))
        assert await producer.ledger.entry_for_offset(59) == 59
        await store.close()

    asyncio.run(scenario())


def test_a_damaged_footer_is_replaced_by_a_scan() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producer = Producer(await store.create())
        for _ in range(200):
            await producer.send()
        await producer.ledger.seal()
        await store.close()
        path = next(path for path in disk.paths() if path.suffix == ".segment")
        flip(disk.content(path), len(disk.content(path)) - 30)
        store = await start(disk.after_power_loss(Fate.DROPPED))
        reader = await store.open(producer.ledger.stat.ledger_id)
        assert await numbers(reader) == list(range(200))
        assert await reader.entry_for_offset(123) == 123
        assert await reader.entry_for_timestamp(77) == 77
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [0, 100, 4096, 20_000])
def test_a_sealed_segment_that_was_cut_is_an_error_to_its_readers(size: int) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producer = Producer(await store.create())
        for _ in range(60):
            await producer.send()
        await producer.ledger.seal()
        await store.close()
        path = next(path for path in disk.paths() if path.suffix == ".segment")
        del disk.content(path)[size:]
        store = await start(disk.after_power_loss(Fate.DROPPED))
        reader = await store.open(producer.ledger.stat.ledger_id)
        with pytest.raises(EntryCorrupt):
            await asyncio.wait_for(reader.read(EntryId(30), 100_000), 10)
        await store.close()

    asyncio.run(scenario())


def test_a_missing_round_in_the_middle_stops_the_start() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producer = Producer(await store.create())
        disk.fail_path = "segment"
        disk.failures["write"] = dict.fromkeys(range(1, 1000), errno.ENOSPC)
        await send_until_refused(producer)
        dead = disk.after_power_loss(Fate.DROPPED)
        await store.close()
        used = [path for path in dead.paths() if path.suffix == ".journal" and any(dead.content(path))]
        assert len(used) > 1
        flip(dead.content(used[0]), 9 * 4096 + 100)
        with pytest.raises(StorageError, match="damaged"):
            await start(dead)

    asyncio.run(scenario())


def test_journal_files_follow_a_changed_setting() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        larger = replace(TINY, journal_file_bytes=256 * KIB, round_bytes_max=128 * KIB)
        ids = []
        for chosen in (TINY, larger, TINY):
            store = await start(disk, settings=chosen)
            producer = Producer(await store.create())
            ids.append(producer.ledger.stat.ledger_id)
            await asyncio.wait([producer.send() for _ in range(200)])
            assert producer.acknowledged == 200
            await store.close()
        store = await start(disk)
        for ledger_id in ids:
            assert await numbers(await store.open(ledger_id)) == list(range(200))
        await store.close()
        sizes = {len(disk.content(path)) for path in disk.paths() if path.suffix == ".journal"}
        assert sizes == {TINY.journal_file_bytes}

    asyncio.run(scenario())
