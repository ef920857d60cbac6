"""What the kernel refuses of its rings, and of a write: nothing is left open, and nothing is said to be written.

The kernel is this machine's.  What it cannot be made to answer is put into one call's place: numbers that it gave.
"""

import asyncio
import ctypes
import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from magnetar.storage.local import kernel_writes
from magnetar.storage.local.kernel_writes import KernelWrites

from .test_kernel_writes import Queue, block_of, disk, prepared, rings

__all__ = ["disk"]

SETUP, ENTER = 425, 426
IS_REFUSED = -1


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


class Refusing:
    """The system call, but for those of one number."""

    def __init__(self, number: int, answer: int = IS_REFUSED, why: int = errno.EPERM) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.refuses = True
        self._number = number
        self._answer = answer
        self._why = why
        self._real: Any = ctypes.PyDLL(None, use_errno=True).syscall
        self._real.restype = ctypes.c_long

    def __call__(self, number: Any, *arguments: Any) -> int:
        self.calls.append((number.value, *(one.value for one in arguments if isinstance(one, ctypes.c_long))))
        if self.refuses and number.value == self._number:
            ctypes.set_errno(self._why)
            return self._answer
        answer: int = self._real(number, *arguments)
        return answer


def test_a_sandbox_that_forbids_rings_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_writes, "_CALL_SETUP", ctypes.c_long(-1))

    async def scenario() -> None:
        before = rings()
        with pytest.raises(OSError, match="not implemented") as refused:
            KernelWrites(asyncio.get_running_loop(), lambda _: None)
        assert refused.value.errno == errno.ENOSYS
        assert rings() == before

    run(scenario)


def test_rings_of_an_older_kernel_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_writes, "_FEATURES", 1 << 31)  # which none has

    async def scenario() -> None:
        before = rings()
        with pytest.raises(OSError, match="its rings are too old") as refused:
            KernelWrites(asyncio.get_running_loop(), lambda _: None)
        assert refused.value.errno == errno.ENOSYS
        assert rings() == before

    run(scenario)


def test_rings_that_cannot_be_mapped_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "no memory for a mapping")

    monkeypatch.setattr(mmap, "mmap", refuse)

    async def scenario() -> None:
        before = rings()
        with pytest.raises(OSError, match="no memory"):
            KernelWrites(asyncio.get_running_loop(), lambda _: None)
        assert rings() == before

    run(scenario)


def test_a_write_that_is_not_taken_has_not_begun_and_the_next_one_is_the_one_that_is_written(
    disk: Any, tmp_path: Path
) -> None:
    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        refusing = Refusing(ENTER, why=errno.EBUSY)
        queue.writes._call = refusing
        for _ in range(3):
            assert not queue.begin(file.descriptor, block_of(b"n"), 0)
        assert queue.answers.empty()
        refusing.refuses = False
        assert await queue.write(file, block_of(b"y"), 0) is None
        assert (tmp_path / "a").read_bytes()[:2] == b"yy"
        assert queue.answers.empty(), "one write, one report"
        queue.writes.close()
        file.close()

    run(scenario)


def test_to_begin_a_write_waits_for_nothing_and_the_end_waits_for_it(disk: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        seen = Refusing(SETUP)
        queue.writes._call = seen
        assert queue.begin(file.descriptor, block_of(b"a"), 0)
        ring = queue.writes._ring
        assert seen.calls == [(ENTER, ring, 1, 0, 0, 0)]  # one submission, none to wait for, no flags
        queue.writes.close()
        assert queue.writes._data is None, "the memory is its owner's again"
        file.close()

    run(scenario)


def test_readiness_with_nothing_under_way_is_no_report(disk: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        queue.writes._done()
        assert await queue.write(file, block_of(b"a"), 0) is None
        queue.writes._done()
        assert queue.answers.empty()
        queue.writes._data = block_of(b"b")  # under way, and not done
        queue.writes._done()
        assert queue.answers.empty()
        queue.writes._data = None
        queue.writes.close()
        file.close()

    run(scenario)


def test_the_rings_numbers_rise_by_one_for_each_write_that_is_taken_and_by_none_for_another(
    disk: Any, tmp_path: Path
) -> None:
    """The kernel reads as many submissions as lie between its number and this one."""

    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        writes = queue.writes
        refusing = writes._call = Refusing(ENTER)
        refusing.refuses = False
        for taken in range(1, 6):
            refusing.refuses = True
            assert not queue.begin(file.descriptor, block_of(b"n"), 0)
            refusing.refuses = False
            assert await queue.write(file, block_of(b"y"), 0) is None
            assert [writes._numbers[at] for at in (writes._submitted_at, writes._seen_at)] == [taken] * 2
        writes.close()
        file.close()

    run(scenario)


def test_the_rings_numbers_wrap(disk: Any, tmp_path: Path) -> None:
    """After 2**32 writes, which a test cannot make: the numbers are put there."""
    last = (1 << 32) - 1

    async def scenario() -> None:
        queue, file = Queue(), prepared(disk, tmp_path / "a")
        writes = queue.writes
        at_call: list[int] = []

        class Seen(Refusing):
            def __call__(self, number: Any, *arguments: Any) -> int:
                at_call.append(writes._numbers[writes._submitted_at])
                return super().__call__(number, *arguments)

        writes._call = Seen(ENTER)
        writes._numbers[writes._submitted_at] = last
        assert not queue.begin(file.descriptor, block_of(b"a"), 0)
        assert at_call == [0]
        assert writes._numbers[writes._submitted_at] == last, "it is not taken"
        writes._data = data = block_of(b"a")
        writes._numbers[writes._seen_at] = last
        place = writes._completions + (last & writes._seen_mask) * kernel_writes._COMPLETION.size
        kernel_writes._COMPLETION.pack_into(writes._memory, place, 0, len(data), 0)
        writes._done()
        assert queue.answers.get_nowait() is None
        assert writes._numbers[writes._seen_at] == writes._numbers[writes._completed_at] == 0
        writes.close()
        file.close()

    run(scenario)


def test_a_write_of_nothing_is_left_to_a_thread(disk: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue = Queue()
        writes = queue.writes
        writes._data = block_of(b"a")
        kernel_writes._COMPLETION.pack_into(writes._memory, writes._completions, 0, 0, 0)
        writes._numbers[writes._completed_at] += 1
        writes._done()
        assert isinstance(queue.answers.get_nowait(), BlockingIOError)
        writes.close()

    run(scenario)


def test_the_end_waits_in_one_call_for_a_write_that_takes_its_time() -> None:
    """Into a pipe that is full, until a process empties it: it begins when the end has begun to wait."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 16))
    os.set_blocking(writing, True)
    emptier = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.read(0, 1)\nwhile os.read({reading}, 65536): pass"],
        stdin=subprocess.PIPE, pass_fds=[reading],
    )  # fmt: skip
    assert emptier.stdin is not None
    begin = emptier.stdin

    class Seen(Refusing):
        def __call__(self, number: Any, *arguments: Any) -> int:
            if arguments[2].value:  # waits: the interpreter stands still meanwhile
                begin.write(b"now\n")
                begin.flush()
            return super().__call__(number, *arguments)

    async def scenario() -> None:
        queue = Queue()
        seen = queue.writes._call = Seen(SETUP)
        ring = queue.writes._ring
        assert queue.begin(writing, block_of(b"a"), 0)
        queue.writes.close()
        assert seen.calls == [(ENTER, ring, 1, 0, 0, 0), (ENTER, ring, 0, 1, 1, 0)]

    try:
        run(scenario)
    finally:
        os.close(writing)
        os.close(reading)
        begin.close()
        emptier.wait(30)


def test_a_loop_that_ended_the_writes_hears_no_more_of_the_ring(disk: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        queue = Queue()
        ring = queue.writes._ring
        queue.writes.close()
        assert not asyncio.get_running_loop().remove_reader(ring)

    run(scenario)
