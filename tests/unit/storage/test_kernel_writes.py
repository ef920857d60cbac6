"""Writes by the kernel: in the file when reported, failures told, and a thread for what the kernel does not do."""

import asyncio
import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from magnetar.base.arena import map_memory
from magnetar.storage.blocks import BLOCK_BYTES
from magnetar.storage.local import kernel_writes
from magnetar.storage.local.disk import RealDisk, RealFile
from magnetar.storage.local.kernel_writes import KernelWrites, address_of
from magnetar.storage.local.ring import RingFile, prepare_file

from .helpers import files_end_at
from .played_journal import Played

BLOCKS = 64


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    disk = RealDisk()
    if not disk.can_direct(tmp_path):
        pytest.skip("no direct I/O here")
    return disk


def prepared(disk: RealDisk, path: Path) -> RealFile:
    prepare_file(disk, path, BLOCKS * BLOCK_BYTES, direct=True)
    return disk.open(path, direct=True, sync_writes=True)


def sparse(disk: RealDisk, path: Path) -> RealFile:
    """A file without blocks: the file system has to find some first, for which the kernel has a thread."""
    file = disk.open(path, create=True, direct=True, sync_writes=True)
    file.truncate(BLOCKS * BLOCK_BYTES)
    return file


def block_of(letter: bytes) -> memoryview:
    data = memoryview(map_memory(BLOCK_BYTES))
    data[:] = letter * BLOCK_BYTES
    return data


class Queue:
    """The kernel's writes, and what is reported of them."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[OSError | None] = asyncio.Queue()
        self.writes = KernelWrites(asyncio.get_running_loop(), self.answers.put_nowait)

    def begin(self, descriptor: int, data: memoryview, position: int) -> bool:
        return self.writes.begin(descriptor, data, address_of(data), position)

    async def write(self, file: RealFile, data: memoryview, position: int) -> OSError | None:
        assert self.begin(file.descriptor, data, position)
        return await asyncio.wait_for(self.answers.get(), 30)


def test_what_is_reported_is_in_the_file_one_write_after_the_other(disk: RealDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        for number in range(20):
            assert await queue.write(file, block_of(b"%c" % (65 + number)), number * BLOCK_BYTES) is None
            assert (tmp_path / "a").read_bytes()[number * BLOCK_BYTES :][:2] == b"%c" % (65 + number) * 2
        queue.writes.close()
        file.close()

    asyncio.run(scenario())


def test_a_write_that_fails_is_reported_with_its_errno(disk: RealDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        with files_end_at(BLOCK_BYTES):
            failure = await queue.write(file, block_of(b"a"), BLOCK_BYTES)
        assert failure is not None
        assert failure.errno == errno.EFBIG
        assert await queue.write(file, block_of(b"b"), BLOCK_BYTES) is None, "the next one is not concerned"
        queue.writes.close()
        file.close()

    asyncio.run(scenario())


def test_a_write_that_ends_too_early_is_left_to_a_thread(disk: RealDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        data = memoryview(map_memory(2 * BLOCK_BYTES))
        with files_end_at(BLOCK_BYTES):
            assert isinstance(await queue.write(file, data, 0), BlockingIOError)
        queue.writes.close()
        file.close()

    asyncio.run(scenario())


def test_a_file_that_is_not_open_for_writes_is_told_of(disk: RealDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue = Queue()
        prepared(disk, tmp_path / "a").close()
        file = RealFile(os.open(tmp_path / "a", os.O_RDONLY))
        failure = await queue.write(file, block_of(b"a"), 0)
        assert failure is not None
        assert failure.errno == errno.EBADF
        file.close()
        queue.writes.close()

    asyncio.run(scenario())


def test_the_end_waits_for_what_is_under_way_and_leaves_no_descriptor(disk: RealDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        file = prepared(disk, tmp_path / "a")
        before = rings()
        for number in range(20):
            queue = Queue()
            assert queue.begin(file.descriptor, block_of(b"z"), number * BLOCK_BYTES)
            queue.writes.close()
            assert (tmp_path / "a").read_bytes()[number * BLOCK_BYTES :][:2] == b"zz"
            assert queue.answers.empty()
        assert rings() == before
        file.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["prepared", "sparse", "no rings", "an unknown operation"])
def test_a_journal_writes_the_same_whoever_writes_it(
    disk: RealDisk, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "no rings":
        monkeypatch.setattr(kernel_writes, "_CALL_SETUP", ctypes.c_long(-1))
    if kind == "an unknown operation":
        monkeypatch.setattr(kernel_writes, "_OPERATION_WRITE", 255)
    by_thread: list[int] = []

    class Seen(RealFile):
        def write(self, data: object, position: int) -> None:
            by_thread.append(position)
            super().write(data, position)  # type: ignore[arg-type]

    async def scenario() -> None:
        before = rings()
        on = Played(files=0)
        made = (sparse if kind == "sparse" else prepared)(disk, tmp_path / "a")
        on.ring.add(RingFile(tmp_path / "a", Seen(made.descriptor), BLOCKS * BLOCK_BYTES))
        on.journal.start()
        for number in range(10):
            on.append(1000, number)
            await asyncio.wait_for(on.rounds_told(number + 1), 30)
        await on.journal.stop(is_needed=True)
        assert on.told[:10] == [(1, number + 1, None) for number in range(10)]
        assert on.journal.write_began_s is None, "no write is under way, says health"
        assert on.numbers_in((tmp_path / "a").read_bytes()) == [*([number] for number in range(10)), []]
        assert len(by_thread) == (0 if kind in ("prepared", "sparse") else 11)
        assert rings() == before

    asyncio.run(scenario())


@pytest.mark.parametrize(("is_synced", "sync_after_write"), [(False, False), (True, True)])
def test_the_kernel_writes_only_what_is_synced_by_being_written(
    is_synced: bool, sync_after_write: bool
) -> None:
    """What has to be synced besides, now or when a fact about a ledger comes, is a thread's."""

    async def scenario() -> None:
        before = rings()
        on = Played(is_synced=is_synced, sync_after_write=sync_after_write)
        on.journal.start()
        assert rings() == before
        await on.journal.stop()

    asyncio.run(scenario())


def test_a_failed_write_of_the_kernels_is_cut_in_another_file(disk: RealDisk, tmp_path: Path) -> None:
    async def scenario() -> None:
        on = Played(files=0)
        for name in ("a", "b"):
            file = prepared(disk, tmp_path / name)
            on.ring.add(RingFile(tmp_path / name, file, BLOCKS * BLOCK_BYTES))
        on.journal.start()
        on.append(1000, 0)
        await asyncio.wait_for(on.rounds_told(1), 30)
        with files_end_at(BLOCK_BYTES):  # the first block of the second file takes the cut
            on.append(1000, 1)
            await asyncio.wait_for(on.rounds_told(2), 30)
        assert "too large" in str(on.told[1][2])
        on.append(1000, 1)
        await asyncio.wait_for(on.rounds_told(3), 30)
        await on.journal.stop()
        assert on.numbers_in((tmp_path / "a").read_bytes()) == [[0]]
        assert [len(round_) for round_ in on.numbers_in((tmp_path / "b").read_bytes())] == [1, 1]

    asyncio.run(scenario())


def rings() -> int:
    """Descriptors of rings that this process has; other tests' files come and go."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += "io_uring" in os.readlink(f"/proc/self/fd/{name}")
    return found
