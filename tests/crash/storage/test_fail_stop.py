"""An unforeseen exception, at every step of writing: it stops writing, and nothing acknowledged is lost.

The fault comes at the Nth call of a function of the store, on whatever thread that is.  Then nothing may hang: whatever
waits fails, later writes fail at once, reads go on, a stop ends; and the next start has every acknowledged entry.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from magnetar.base.errors import StorageError
from magnetar.storage.local.catalogue import Catalogue
from magnetar.storage.local.crew import Crew
from magnetar.storage.local.journal import Journal
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.ring import Ring
from magnetar.storage.local.rounds import Round
from magnetar.storage.local.segment import Staging
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.local.writebehind import WriteBehind
from magnetar.testing.disk import CrashDisk, CrashFile, Fate
from tests.crash.storage.written_store import SOON_S, Producer, numbers, start, until


class Fault:
    """Raises at the `number`th call of a function, and is counted."""

    def __init__(self, original: Callable[..., Any], number: int, error: type[BaseException]) -> None:
        self.original = original
        self.number = number
        self.error = error
        self.calls = 0
        self.lock = threading.Lock()
        self.raised = False
        self.is_armed = False
        self.path = ""

    def __call__(self, owner: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_armed and self.path in str(getattr(owner, "_path", "")):
            with self.lock:
                self.calls += 1
                if self.calls == self.number:
                    self.raised = True
                    raise self.error("injected")
        return self.original(owner, *args, **kwargs)


STEPS: list[tuple[type, str, str]] = [
    (CrashFile, "write", "segments"),
    (CrashFile, "sync", "segments"),
    (CrashFile, "write", "catalogue"),
    (CrashFile, "sync", "catalogue"),
    (CrashFile, "write", "journal"),
    (CrashDisk, "open", ""),
    (CrashDisk, "sync_directory", ""),
    (CrashDisk, "remove", ""),
    (Staging, "write_run", ""),
    (Staging, "read_block", ""),
    (Crew, "flush", ""),
    (Crew, "sync", ""),
    (Crew, "_flush_one", ""),
    (Crew, "_sync_one", ""),
    (ThreadPoolExecutor, "submit", ""),
    (Catalogue, "commit", ""),
    (WriteBehind, "flush", ""),
    (WriteBehind, "_on_flushed", ""),
    (WriteBehind, "_save", ""),
    (WriteBehind, "_flush_all", ""),
    (WriteBehind, "_sync_all", ""),
    (WriteBehind, "_plan_sync", ""),
    (WriteBehind, "on_deleted", ""),
    (LocalLedger, "on_durable", ""),
    (LocalLedger, "on_flushed", ""),
    (LocalLedgerStore, "on_checkpoint", ""),
    (LocalLedgerStore, "on_finished", ""),
    (Ring, "reserve", ""),
    (Ring, "recycle", ""),
    (Round, "finish", ""),
    (Round, "clear", ""),
    (Journal, "_take", ""),
    (Journal, "_write", ""),
    (Journal, "_note_end", ""),
    (Journal, "wants_checkpoint", ""),
]


@pytest.fixture(params=STEPS, ids=lambda step: f"{step[0].__name__}.{step[1]} {step[2]}".strip())
def step(request: pytest.FixtureRequest) -> Iterator[Callable[[int, type[BaseException]], Fault]]:
    owner, name, path = request.param
    patches: list[pytest.MonkeyPatch] = []

    def inject(number: int, error: type[BaseException]) -> Fault:
        fault = Fault(getattr(owner, name), number, error)
        fault.path = path
        patch = pytest.MonkeyPatch()
        patches.append(patch)
        patch.setattr(owner, name, lambda *args, **kwargs: fault(*args, **kwargs))
        return fault

    yield inject
    for patch in patches:
        patch.undo()


async def load(store: LocalLedgerStore, producers: list[Producer], fault: Fault) -> None:
    """Everything that a store is used for, until it takes no more."""
    spare = await store.create()
    await store.create()
    senders = producers[:]
    fault.is_armed = True
    for turn in range(40):
        waiting = []
        for producer in senders:
            try:
                waiting += [producer.send(), producer.send()]
            except StorageError:
                # The journal refuses as soon as a write failed; the store hears of it once the cut is written.
                async with asyncio.timeout(SOON_S):
                    await until(lambda: store.failure is not None)
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=SOON_S)
            assert not late
        if turn == 5:
            await spare.seal()
        if turn == 9:
            await store.delete(spare.stat.ledger_id)
        if turn in (7, 12):
            await store.checkpoint()
        if turn == 14:
            await senders[0].ledger.seal()
            senders[0] = Producer(await store.create())
            producers.append(senders[0])


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_an_unforeseen_exception_stops_writing_and_loses_nothing(
    step: Callable[[int, type[BaseException]], Fault], number: int, error: type[BaseException]
) -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producers = [Producer(await store.create()) for _ in range(3)]
        fault = step(number, error)
        try:
            async with asyncio.timeout(SOON_S):
                await load(store, producers, fault)
        except StorageError:
            async with asyncio.timeout(SOON_S):
                await until(lambda: store.failure is not None)
        if not fault.raised:
            await store.close()
            pytest.skip("this scenario has not so many calls of it")
        fault.is_armed = False
        async with asyncio.timeout(SOON_S):
            while store.failure is None:
                await store.behind.worker.run(lambda: None)
            for producer in producers:
                with pytest.raises(StorageError):
                    producer.send()
                stat = await producer.ledger.seal()
                assert stat.entry_count >= producer.acknowledged
                assert (await numbers(producer.ledger))[: producer.acknowledged] == list(
                    range(producer.acknowledged)
                )
            for refused in (
                store.create(),
                store.delete(producers[0].ledger.stat.ledger_id),
                store.checkpoint(),
            ):
                with pytest.raises(StorageError):
                    await refused
            problem = store.problem
            assert problem is not None
            assert "stopped writing" in problem
            assert "restart" in problem
            await store.segment_files.write_out(producers[0].ledger.stat.ledger_id)
            await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        for producer in producers:
            reader = await store.open(producer.ledger.stat.ledger_id)
            found = await numbers(reader)
            assert producer.acknowledged <= len(found) <= producer.sent
            assert found == list(range(len(found)))
        assert store.problem is None
        await store.close()

    asyncio.run(scenario())


def test_the_fault_is_told_once_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        store = await start(CrashDisk())
        producer = Producer(await store.create())
        await producer.send()

        def broken(*_: object) -> None:
            raise RuntimeError("injected")

        monkeypatch.setattr(Catalogue, "commit", broken)
        for _ in range(3):
            with pytest.raises(StorageError):
                await store.checkpoint()
        await store.close()

    asyncio.run(scenario())
    told = [record for record in caplog.records if record.exc_info and record.levelno == logging.ERROR]
    assert len(told) == 1
    assert "a checkpoint" in told[0].getMessage()


@pytest.mark.parametrize("noted", [0, 2])
def test_the_journal_forgets_nothing_that_the_catalogue_would_not_know(noted: int) -> None:
    """What is on the list of a checkpoint is not believed: here a bug has lost it."""

    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producers = [Producer(await store.create()) for _ in range(3)]
        for _ in range(noted):
            for producer in producers:
                await producer.send()
            await store.checkpoint()
        for producer in producers:
            await producer.send()
        for ledger in store.behind.touched:
            ledger.touched = False
        store.behind.touched.clear()
        with pytest.raises(StorageError):
            await store.checkpoint()
        assert store.failure is not None
        await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        for producer in producers:
            reader = await store.open(producer.ledger.stat.ledger_id)
            assert await numbers(reader) == list(range(noted + 1))
        await store.close()

    asyncio.run(scenario())


def test_the_journal_forgets_no_deletion_that_the_catalogue_would_not_know() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        ledger = await store.create()
        await store.checkpoint()
        await store.delete(ledger.stat.ledger_id)
        store.behind._deleted.clear()
        with pytest.raises(StorageError):
            await store.checkpoint()
        await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        assert await store.list_ledgers() == []
        await store.close()

    asyncio.run(scenario())


def test_rounds_behind_one_that_could_not_be_applied_are_not_applied() -> None:
    """They were written already, and their entries would get the places of those that are missing."""

    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        producer = Producer(await store.create())
        await producer.send()
        fault = Fault(LocalLedger.on_durable, 1, RuntimeError)
        fault.is_armed = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalLedger, "on_durable", lambda *args: fault(*args))
            waiting = [
                producer.send() for _ in range(60)
            ]  # several rounds: the next is written when one is applied
            _, late = await asyncio.wait(waiting, timeout=SOON_S)
        assert not late
        assert producer.acknowledged == 1
        assert await numbers(producer.ledger) == [0]
        assert store.behind.flush(list(store.ledgers.values())) is None
        await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        found = await numbers(await store.open(producer.ledger.stat.ledger_id))
        assert found == list(range(len(found)))
        await store.close()

    asyncio.run(scenario())


def test_what_is_queued_is_answered_when_there_is_no_memory_for_another_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        store = await start(CrashDisk())
        producer = Producer(await store.create())

        def no_memory(*_: object) -> None:
            raise MemoryError("injected")

        monkeypatch.setattr(Round, "finish", no_memory)
        monkeypatch.setattr(Round, "__init__", no_memory)
        waiting: list[asyncio.Future[None]] = []
        with suppress(StorageError):  # once the thread has ended, the rest is refused instead of queued
            waiting.extend(producer.send() for _ in range(60))  # more than two rounds take
        assert waiting
        _, late = await asyncio.wait(waiting, timeout=SOON_S)
        assert not late
        assert producer.acknowledged == 0
        assert store.failure is not None
        await asyncio.wait_for(store.close(), SOON_S)

    asyncio.run(scenario())


def test_a_checkpoint_that_failed_forgets_no_deletion() -> None:
    async def scenario() -> None:
        disk = CrashDisk()
        store = await start(disk)
        ledger = await store.create()
        await store.checkpoint()
        await store.delete(ledger.stat.ledger_id)
        disk.fail_path = "catalogue"
        disk.calls.clear()
        disk.failures["write"] = {1: errno.ENOSPC}
        with pytest.raises(StorageError):
            await store.checkpoint()
        await store.checkpoint()
        assert store.problem is None
        await store.close()
        store = await start(disk.after_power_loss(Fate.DROPPED))
        assert await store.list_ledgers() == []
        await store.close()

    asyncio.run(scenario())


def test_a_store_that_cannot_have_its_threads_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start

    async def scenario(allowed: int) -> None:
        started = 0

        def begin(thread: threading.Thread) -> None:
            nonlocal started
            if thread.name.startswith("magnetar"):
                started += 1
                if started > allowed:
                    raise RuntimeError("can't start new thread")
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", begin)
        with pytest.raises(StorageError, match=r"can't start new thread.*ulimit -u"):
            await start(CrashDisk())

    # The journal's, the worker, its crew of eight, and two that read.
    for allowed in range(12):
        asyncio.run(scenario(allowed))
        monkeypatch.undo()


def test_no_thread_is_started_behind_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = await start(CrashDisk())
        producers = [Producer(await store.create()) for _ in range(20)]

        def refused(_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", refused)
        for _ in range(20):
            await asyncio.wait([producer.send() for producer in producers])
        await store.checkpoint()
        assert [producer.acknowledged for producer in producers] == [20] * 20
        assert await numbers(producers[0].ledger) == list(range(20))
        await store.close()
        assert store.failure is None
        monkeypatch.undo()  # asyncio ends with a thread of its own

    asyncio.run(scenario())
