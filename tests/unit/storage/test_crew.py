"""The threads that write behind: calls in order and each reported, segments and footers written, synced and told of."""

import asyncio
import errno
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.base.errors import EntryCorrupt
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local.catalogue import Fact
from magnetar.storage.local.crew import CREW_THREADS, Crew, Flush, Sync, start_all
from magnetar.storage.local.format import FactKind
from magnetar.storage.local.ledger import LocalLedger
from magnetar.storage.local.segment import Dirty
from magnetar.storage.local.worker import Worker
from magnetar.testing.disk import CrashDisk, CrashFile

from .helpers import in_a_loop
from .seen_disk import SeenDisk

SEGMENT = Path("/segments/1.segment")
NO_LEDGER = cast(LocalLedger, None)  # tasks carry theirs for the loop alone
FACT = Fact(FactKind.PROGRESS, 1, 0, 0, 0, 0, b"")


# --- the worker -------------------------------------------------------------------------------------------------------


class Told:
    """A worker, and what it says of its reports."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, BaseException]] = []
        loop = asyncio.get_running_loop()
        self.worker = Worker("magnetar-test", loop, lambda what, error: self.failures.append((what, error)))


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


@in_a_loop
async def test_calls_are_carried_out_in_order_in_one_thread_and_reported_on_the_loop() -> None:
    told = Told()
    on_loop = threading.current_thread()
    called: list[tuple[int, threading.Thread]] = []
    reported: list[tuple[int | None, threading.Thread]] = []

    def call(number: int, more: int) -> int:
        called.append((number + more, threading.current_thread()))
        return number + more

    for number in range(3):
        told.worker.submit(
            call, number, 10, report=lambda result, _: reported.append((result, threading.current_thread()))
        )
    assert called == [], "nothing before the start"
    told.worker.start()
    assert await told.worker.run(call, 3, 10) == 13
    (thread,) = threads("magnetar-test")
    assert called == [(number, thread) for number in (10, 11, 12, 13)]
    assert reported == [(number, on_loop) for number in (10, 11, 12)]
    told.worker.stop()
    assert threads("magnetar-test") == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "EIO"), RuntimeError("a bug"), SystemExit()])
@in_a_loop
async def test_what_a_call_raises_is_raised_where_it_is_waited_for(error: BaseException) -> None:
    told = Told()
    told.worker.start()

    def fails() -> None:
        raise error

    for _ in range(2):  # the thread goes on
        outcome = told.worker.run(fails)
        await asyncio.wait([outcome])
        assert outcome.exception() is error
    assert told.failures == []
    told.worker.stop()


@in_a_loop
async def test_a_caller_that_gives_up_is_no_fault_and_the_call_is_made() -> None:
    told = Told()
    called: list[int] = []
    for outcome in (told.worker.run(called.append, 1), told.worker.run(called.append, 2)):
        outcome.cancel()
    told.worker.start()
    await told.worker.run(called.append, 3)
    assert (called, told.failures) == ([1, 2, 3], [])
    told.worker.stop()


@in_a_loop
async def test_a_report_that_raises_is_told_of() -> None:
    told = Told()
    told.worker.start()
    error = RuntimeError("a bug")

    def report(_: Any, __: Any) -> None:
        raise error

    told.worker.submit(int, report=report)
    await told.worker.run(int)
    assert told.failures == [("applying what a thread has written", error)]
    told.worker.stop()


@in_a_loop
async def test_a_worker_that_waits_keeps_nothing_of_its_last_call() -> None:
    """A flush carries a megabyte of entries."""

    class Large:
        pass

    large = Large()
    seen = weakref.ref(large)
    kept: list[bool] = []

    class Calls(queue.SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            kept.append(seen() is not None)
            return super().get(block, timeout)

    told = Told()
    told.worker._calls = Calls()
    told.worker.submit(id, large, report=lambda *_: None)
    del large
    told.worker.start()
    told.worker.stop()
    assert kept == [True, False]


@in_a_loop
async def test_a_worker_that_never_began_can_be_stopped() -> None:
    Told().worker.stop()


# --- threads of a pool ------------------------------------------------------------------------------------------------


def test_all_threads_of_a_pool_are_started_and_prepared() -> None:
    pool = ThreadPoolExecutor(4, thread_name_prefix="magnetar-test")
    prepared: set[threading.Thread] = set()
    start_all(pool, 4, lambda: prepared.add(threading.current_thread()))
    assert set(threads("magnetar-test")) == prepared
    assert len(prepared) == 4
    pool.shutdown()


def test_a_thread_that_cannot_be_prepared_ends_all_of_them() -> None:
    pool = ThreadPoolExecutor(4, thread_name_prefix="magnetar-test")
    turns = iter(range(4))

    def prepare() -> None:
        if next(turns) == 1:
            raise MemoryError("no buffer")

    with pytest.raises(MemoryError, match="no buffer"):
        start_all(pool, 4, prepare)
    for thread in threads("magnetar-test"):
        thread.join()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_a_thread_that_cannot_be_started_ends_those_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPoolExecutor(4, thread_name_prefix="magnetar-test")
    begin = threading.Thread.start
    turns = iter(range(4))

    def start(thread: threading.Thread) -> None:
        if next(turns) == 2:
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start_all(pool, 4, lambda: None)
    for thread in threads("magnetar-test"):
        thread.join()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


# --- the crew ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk() -> SeenDisk:
    return SeenDisk()


@pytest.fixture
def crew(disk: SeenDisk) -> Any:
    crew = Crew(disk, direct=True)
    yield crew
    crew.close()
    assert threads("magnetar-flush-crew") == []
    assert disk.still_open == []


def records(first: int, *sizes: int) -> list[Dirty]:
    return [
        Dirty(bytes([first + number]) * 40, (bytes([first + number]) * size,), 0, 0)
        for number, size in enumerate(sizes)
    ]


def content_of(dirty: list[Dirty]) -> bytes:
    return b"".join(record.header + bytes(record.parts[0]) for record in dirty)


def flush(
    dirty: list[Dirty],
    position: int = 0,
    rest: bytes | None = b"",
    *,
    path: Path = SEGMENT,
    create: bool = True,
) -> Flush:
    end = position + len(content_of(dirty))
    return Flush(NO_LEDGER, path, create, dirty, position, end, rest)


def sync(footer: bytes | None = None, position: int = 0, path: Path = SEGMENT) -> Sync:
    return Sync(NO_LEDGER, path, position, footer, FACT, 0)


def test_the_crew_s_threads_and_their_memory_are_there_before_the_first_task(crew: Crew) -> None:
    crew.prepare()
    assert len(threads("magnetar-flush-crew")) == CREW_THREADS
    assert crew._own.staging is crew._staging(), "this thread's, too"


def test_entries_are_written_side_by_side_whether_the_last_block_is_known_or_read(
    disk: SeenDisk, crew: Crew
) -> None:
    first, second, third = records(1, 3000, 3000), records(3, 700), records(4, 9000)
    whole = content_of(first) + content_of(second) + content_of(third)
    one = flush(first)
    crew.flush([one])
    assert (one.error, one.records) == (None, [])
    assert one.new_rest == whole[BLOCK_BYTES : one.end]
    two = flush(second, one.end, one.new_rest, create=False)
    crew.flush([two])
    three = flush(third, two.end, None, create=False)  # as behind a start
    crew.flush([three])
    assert (two.error, three.error) == (None, None)
    assert three.new_rest == whole[len(whole) - len(whole) % BLOCK_BYTES :]
    assert bytes(disk.content(SEGMENT)) == whole.ljust(-(-len(whole) // BLOCK_BYTES) * BLOCK_BYTES, b"\0")
    assert disk.flags[SEGMENT.name] == (True, False)


def test_a_long_run_is_written_in_large_pieces_and_a_short_one_in_small_ones(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it begins far behind in its file."""
    sizes: list[int] = []
    write = CrashFile.write

    def seen(file: CrashFile, data: Any, position: int) -> None:
        sizes.append(len(data))
        write(file, data, position)

    monkeypatch.setattr(CrashFile, "write", seen)
    crew.flush([flush(records(1, 1 << 20), 3 << 20)])
    assert max(sizes) == 256 << 10
    crew.flush([flush(records(1, 3 << 20), 4 << 20)])
    assert max(sizes) == 1 << 20


@pytest.mark.parametrize("fails", [0, 1, 2])
def test_a_segment_that_cannot_be_written_concerns_no_other(disk: SeenDisk, crew: Crew, fails: int) -> None:
    paths = [Path(f"/segments/{number}.segment") for number in range(3)]
    tasks = [flush(records(number, 100), path=path) for number, path in enumerate(paths, start=1)]
    disk.fail_path = paths[fails].name
    disk.failures["write"] = {1: errno.ENOSPC}
    crew.flush(tasks)
    assert [None if task.error is None else cast(OSError, task.error).errno for task in tasks] == [
        errno.ENOSPC if number == fails else None for number in range(3)
    ]
    for number, path in enumerate(paths):
        assert any(disk.content(path)) == (number != fails)


def test_a_segment_that_is_shorter_than_it_was_is_an_error_and_not_written(
    disk: SeenDisk, crew: Crew
) -> None:
    disk.open(SEGMENT, create=True).close()
    task = flush(records(1, 100), 500, None, create=False)
    crew.flush([task])
    assert isinstance(task.error, EntryCorrupt)
    assert len(disk.content(SEGMENT)) == 0


def test_a_segment_that_is_gone_is_an_error_and_not_made(disk: SeenDisk, crew: Crew) -> None:
    task, late = flush(records(1, 100), create=False), sync()
    crew.flush([task])
    crew.sync([late])
    assert isinstance(task.error, FileNotFoundError)
    assert isinstance(late.error, FileNotFoundError)
    assert not late.sync_failed
    assert disk.paths() == []


@pytest.mark.parametrize("count", [1, 2, 9])
def test_segments_are_durable_when_their_syncs_are_done(disk: SeenDisk, crew: Crew, count: int) -> None:
    paths = [Path(f"/segments/{number}.segment") for number in range(count)]
    crew.flush([flush(records(number, 100), path=path) for number, path in enumerate(paths)])
    disk.sync_directory(SEGMENT.parent)
    assert [len(disk.durable(path)) for path in paths] == [0] * count
    tasks = [sync(path=path) for path in paths]
    crew.sync(tasks)
    assert all(task.error is None for task in tasks)
    for number, path in enumerate(paths):
        assert disk.durable(path)[:140] == bytes([number]) * 140
    assert sorted(disk.synced) == sorted(["segments", *(path.name for path in paths)])


def test_a_footer_takes_the_place_of_what_is_behind_the_records_and_is_durable(
    disk: SeenDisk, crew: Crew
) -> None:
    """A flush of entries that were given up may have left more than a footer writes over."""
    crew.flush([flush(records(1, 3 * BLOCK_BYTES))])
    disk.sync_directory(SEGMENT.parent)
    task = sync(b"f" * BLOCK_BYTES, BLOCK_BYTES)
    crew.sync([task])
    assert (task.error, task.sync_failed) == (None, False)
    assert disk.durable(SEGMENT) == b"\1" * BLOCK_BYTES + b"f" * BLOCK_BYTES


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_only_a_sync_that_fails_leaves_in_doubt_what_is_on_disk(
    disk: SeenDisk, crew: Crew, kind: str
) -> None:
    crew.flush([flush(records(1, 100))])
    disk.calls.clear()
    disk.failures[kind] = {1: errno.EIO}
    task = sync(b"f" * BLOCK_BYTES, BLOCK_BYTES)
    crew.sync([task])
    assert cast(OSError, task.error).errno == errno.EIO
    assert task.sync_failed == (kind == "sync")
    assert disk.calls.get("sync", 0) == (1 if kind == "sync" else 0)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("what", ["flush", "sync"])
def test_a_fault_is_raised_and_not_taken_for_the_disk_s(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, what: str, count: int
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(CrashDisk, "open", broken)
    call: Callable[[], None] = (
        (lambda: crew.flush([flush(records(1, 100)) for _ in range(count)]))
        if what == "flush"
        else (lambda: crew.sync([sync() for _ in range(count)]))
    )
    with pytest.raises(RuntimeError, match="a bug"):
        call()
