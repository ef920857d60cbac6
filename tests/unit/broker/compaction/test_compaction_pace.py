"""How fast a run of compaction may be, and what becomes of its thread."""

import asyncio
import threading

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.compaction import run
from magnetar.broker.compaction.entries import Written
from magnetar.broker.compaction.run import CompactionThread, Progress
from magnetar.testing.clock import FakeClock
from magnetar.testing.ledgers import MemoryLedger, MemoryLedgerStore


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_run_waits_until_as_many_bytes_may_have_been_handled() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        progress = Progress(clock, 100.0)

        async def begun() -> "asyncio.Task[None]":
            waiting = asyncio.create_task(progress.wait())
            await _settle()
            return waiting

        assert (await begun()).done(), "nothing is owed at the beginning"
        for more, seconds in (
            ("noted_bytes", 2),
            ("read_bytes", 2),
            ("written_bytes", 2),
            ("read_bytes", 0.5),
        ):
            setattr(progress, more, getattr(progress, more) + 100 * seconds)
            waiting = await begun()
            clock.advance(seconds - 0.25)
            await _settle()
            assert not waiting.done(), more
            clock.advance(0.25)
            await _settle()
            assert waiting.done()
        clock.advance(10.0)
        assert (await begun()).done(), "it is behind what it may have done"

    asyncio.run(scenario())


def test_what_waits_for_the_thread_is_given_up_when_it_closes() -> None:
    async def scenario() -> None:
        thread = CompactionThread(FakeClock().monotonic)
        has_begun, may_end = threading.Event(), threading.Event()

        def hold() -> str:
            has_begun.set()
            may_end.wait()
            return "held"

        at_work = asyncio.ensure_future(thread.run(hold))
        queued = asyncio.ensure_future(thread.run(hold))
        await asyncio.get_running_loop().run_in_executor(None, has_begun.wait)
        thread.close()
        may_end.set()
        assert await at_work == "held"
        with pytest.raises(asyncio.CancelledError):
            await queued

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_closed_thread_takes_no_work_and_says_why() -> None:
    async def scenario() -> None:
        thread = CompactionThread(FakeClock().monotonic)
        assert await thread.run(lambda: "done") == "done"
        thread.close()
        with pytest.raises(StorageError, match="the server stops"):
            await thread.run(lambda: "done")

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_work_rests_until_the_thread_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        asked = 0

        def monotonic() -> float:
            nonlocal asked
            asked += 1
            return 0.0

        thread = CompactionThread(monotonic)
        rests: list[float] = []
        hurry = thread._pace._hurry
        monkeypatch.setattr(hurry, "wait", rests.append)
        await thread.run(thread.rest)
        assert asked == 2
        assert len(rests) == 1
        assert not hurry.is_set()
        thread.close()
        assert hurry.is_set()

    asyncio.run(asyncio.wait_for(scenario(), 30))


async def _appending(store: MemoryLedgerStore) -> tuple[MemoryLedger, "asyncio.Task[None]"]:
    """A ledger that gets six entries of 60 bytes, from a run that may append 100 at a time and few."""
    writer = await store.create()
    store.automatic = False
    written = [Written([bytes(60)], 60, number, 0) for number in range(6)]
    appending = asyncio.ensure_future(run._append(writer, written))
    await _settle()
    return store.ledgers[writer.ledger_id], appending


@pytest.mark.parametrize(
    ("bytes_max", "entries_max", "pieces"),
    [
        (100, 100, (2, 4, 6)),
        (120, 100, (2, 4, 6)),
        (121, 100, (3, 6)),
        (1000, 100, (6,)),
        (1000, 2, (2, 4, 6)),
        (1000, 1, (1, 2, 3, 4, 5, 6)),
    ],
)
def test_a_piece_is_durable_before_the_next_one_is_appended(
    bytes_max: int, entries_max: int, pieces: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So producers find the journal free in between, and a disk that fails ends the run before the ledger is taken."""
    monkeypatch.setattr(run, "APPEND_BYTES", bytes_max)
    monkeypatch.setattr(run, "_APPENDS_AT_ONCE", entries_max)

    async def scenario() -> None:
        store = MemoryLedgerStore()
        ledger, appending = await _appending(store)
        for appended in pieces:
            assert ledger.appended == appended
            store.write(len(store) - 1)
            await _settle()
            assert (ledger.appended, appending.done()) == (appended, False)
            store.write()
            await _settle()
        assert appending.done()
        await appending

    asyncio.run(asyncio.wait_for(scenario(), 30))


@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_an_entry_that_cannot_be_written_ends_the_run(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger without it would take the place of those that have it."""
    monkeypatch.setattr(run, "APPEND_BYTES", 100)

    async def scenario() -> None:
        store = MemoryLedgerStore()
        _, appending = await _appending(store)
        for _ in range(pieces):
            store.write()
            await _settle()
        store.fail()
        await _settle()
        assert appending.done()
        with pytest.raises(StorageError):
            await appending

    asyncio.run(asyncio.wait_for(scenario(), 30))
