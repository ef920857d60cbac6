"""How the store begins and ends: what it makes, what it refuses, which threads and files it leaves."""

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from magnetar.base.errors import LedgerFenced, StorageError, StorageFull
from magnetar.storage.local import leases
from magnetar.storage.local import store as module
from magnetar.storage.local.ledger import State
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.testing.clock import FakeClock
from magnetar.testing.disk import CrashDisk

from .behind import DATA, SETTINGS, Rig, held, sent, settled, until
from .helpers import append, in_a_loop

JOURNAL = DATA / "journal"


@pytest.fixture
def rig() -> Rig:
    return Rig()


# --- the start --------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_start_makes_the_folders_on_the_machine_s_own_disk(tmp_path: Path) -> None:
    store = await LocalLedgerStore.start(tmp_path / "new", settings=SETTINGS, clock=FakeClock())
    await store.close()
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"catalogue", "journal", "leases", "segments", "store-id"}


@in_a_loop
async def test_the_names_of_the_folders_are_durable_before_anything_is_in_them(rig: Rig) -> None:
    store = await LocalLedgerStore.start(DATA, settings=SETTINGS, clock=rig.clock, disk=rig.disk)
    await store.close()
    assert rig.disk.synced[0] == "data"


@pytest.mark.parametrize("direct", [True, False])
@in_a_loop
async def test_a_disk_without_direct_writes_is_told_of(
    caplog: pytest.LogCaptureFixture, direct: bool
) -> None:
    disk = CrashDisk(direct=direct)
    store = await LocalLedgerStore.start(DATA, settings=SETTINGS, clock=FakeClock(), disk=disk)
    assert ("no direct I/O" in caplog.text) is not direct
    assert store.journal._sync_after_write is not direct
    await store.close()


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (OSError(errno.ENOSPC, "full"), StorageFull, "/data cannot be used: .*full"),
        (OSError(errno.EDQUOT, "full"), StorageFull, "/data cannot be used: .*full"),
        (OSError(errno.EACCES, "denied"), StorageError, "/data cannot be used: .*denied"),
        (
            RuntimeError("can't start new thread"),
            StorageError,
            r"allow this process more threads \(ulimit -u",
        ),
        (RuntimeError("a bug"), RuntimeError, "^a bug$"),
    ],
)
@in_a_loop
async def test_a_start_that_is_not_possible_says_why(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception], told: str
) -> None:
    def refused(_: object) -> None:
        raise error

    monkeypatch.setattr(module, "recover", refused)
    with pytest.raises(raised, match=told) as caught:
        async with rig.store():
            pass
    assert type(caught.value) is raised


@pytest.mark.parametrize("allowed", [0, 1, 2, 5, 10, 11])
@in_a_loop
async def test_a_start_that_cannot_have_its_threads_leaves_none_and_no_timer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    path = DATA / "leases" / ("a" * 32)
    lease = rig.disk.open(path, create=True)
    lease.write(leases.encode(600, [1]), 0)
    lease.close()
    begin = threading.Thread.start
    left = [True] * allowed

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("magnetar"):
            if not left:
                raise RuntimeError("can't start new thread")
            left.pop()
        begin(thread)

    before = set(threading.enumerate())  # such as what compiles, which other tests may have begun
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(StorageError, match="can't start new thread"):
            async with rig.store():
                pass
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith(("magnetar-flush-crew", "magnetar-read")):
            thread.join()  # they were told to end
    left_over = set(threading.enumerate()) - before
    assert [thread.name for thread in left_over if thread.name.startswith("magnetar")] == []
    assert all(timer.cancelled for _, _, timer in rig.clock._timers)
    assert rig.disk.still_open == []


@in_a_loop
async def test_a_start_goes_on_behind_what_it_found(rig: Rig) -> None:
    async with rig.store() as store:
        first, _, gone = [await store.create() for _ in range(3)]
        await sent(first, 100)
        await store.checkpoint()
        await sent(first, 100, 100)
        empty = await store.create()
        await store.delete(gone.ledger_id)
        last = store.durable_sequence
        killed = rig.disk.after_kill()
    again = Rig()
    again.disk._names, again.disk._durable_names = killed._names, killed._durable_names
    async with again.store() as store:
        assert store.durable_sequence == last
        await until(lambda: store.counters.checkpoints == 1)
        ring = store.journal._ring
        assert len(list(ring.files())) == SETTINGS.journal_file_count
        assert list(ring.full) == [], "what was needed of the journal is in segments"
        known = again.noted()
        assert {number: line.entry_count for number, (line, _) in known.facts.items()} == {
            1: 3,
            2: 0,
            int(empty.ledger_id): 0,
        }
        assert known.deleted == {gone.ledger_id}
        assert known.journal_sequence == last
        fresh = await store.create()
        assert (fresh.ledger_id, store.durable_sequence) == (5, last + 1)
    async with again.store() as store:
        assert store.counters.checkpoints == 0, "nothing in the journal is needed"


@pytest.mark.parametrize("count", [2, 5])
@in_a_loop
async def test_the_ring_gets_as_many_files_as_are_set(rig: Rig, count: int) -> None:
    for _ in range(2):
        async with rig.store(journal_file_count=count) as store:
            assert rig.disk.names(JOURNAL) == [f"{number:04d}.journal" for number in range(count)]
            assert len(list(store.journal._ring.files())) == count
            assert {rig.disk.flags[name] for name in rig.disk.names(JOURNAL)} == {(True, True)}
    assert store._preparing is None, "they are all there"


@in_a_loop
async def test_files_of_the_ring_are_not_synced_by_each_write_when_that_is_not_wanted(rig: Rig) -> None:
    async with rig.store(journal_sync_data=False) as store:
        assert {rig.disk.flags[name] for name in rig.disk.names(JOURNAL)} == {(True, False)}
        assert not store.journal._sync_after_write


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), RuntimeError("injected")])
@in_a_loop
async def test_without_room_the_ring_stays_smaller_and_a_fault_ends_writing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(module, "prepare_file", refused)
    async with rig.store() as store:
        assert len(list(store.journal._ring.files())) == 1
        if isinstance(error, OSError):
            assert store.failure is None
            assert "the journal ring stays smaller than set: file=0001.journal" in caplog.text
        else:
            assert "making a journal file" in str(store.failure)


# --- the end ----------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_stop_answers_all_that_is_queued_and_takes_nothing_more(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        other = await store.create()
        await other.seal()
        waiting = [append(ledger, b"x" * 100, number) for number in range(200)]
        await store.close()
        assert all(one.done() for one in waiting)
        assert rig.noted().facts[1][0].entry_count == 200
        assert other.state is State.SEALED
        with pytest.raises(LedgerFenced):
            append(ledger, b"x", 0)
        for refused in (
            store.create(),
            store.open(ledger.ledger_id),
            store.delete(ledger.ledger_id),
            store.list_ledgers(),
            store.checkpoint(),
        ):
            with pytest.raises(StorageError, match="the ledger store is closed"):
                await refused
        await store.close()


@in_a_loop
async def test_a_store_takes_nothing_more_from_the_beginning_of_its_stop_on(rig: Rig) -> None:
    async with rig.store() as store:
        with held(store):
            closing = asyncio.ensure_future(store.close())
            await until(lambda: store.behind._closing)
            with pytest.raises(StorageError, match="the ledger store is closed"):
                await store.create()
        await closing


@pytest.mark.parametrize("fails", [False, True])
@in_a_loop
async def test_a_stop_marks_the_journal_s_end_when_the_next_start_needs_it(rig: Rig, fails: bool) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        await sent(ledger, 100)
        if fails:
            rig.fail("segment", "write", 1, code=errno.ENOSPC)
        rounds = store.counters.rounds
        await store.close()
        assert store.counters.rounds == rounds + fails


@in_a_loop
async def test_a_stop_waits_for_the_files_that_are_being_made(rig: Rig) -> None:
    store = await LocalLedgerStore.start(DATA, settings=SETTINGS, clock=rig.clock, disk=rig.disk)
    await store.close()
    assert len(rig.disk.names(JOURNAL)) == SETTINGS.journal_file_count
    assert rig.disk.still_open == []


@in_a_loop
async def test_a_stop_leaves_leases_to_the_next_start(rig: Rig) -> None:
    async with rig.store() as store:
        store.leases.open(10)
    timers = [timer for _, _, timer in rig.clock._timers if timer.callback == store.leases._lapse]
    assert [timer.cancelled for timer in timers] == [True]


@in_a_loop
async def test_a_stop_saves_nothing_before_the_journal_has_written_what_is_queued(rig: Rig) -> None:
    async with rig.store() as store:
        ledger = await store.create()
        may_write = threading.Event()
        store.journal._worker.submit(may_write.wait, report=lambda *_: None)
        queued = append(ledger, bytes(100), 9)
        closing = asyncio.ensure_future(store.close())
        for _ in range(20):  # steps that a close would take meanwhile
            await settled(store)
        assert not queued.done()
        may_write.set()
        await closing
    await queued
    assert rig.noted().facts[1][0].entry_count == 1
