"""Writes that the kernel carries out while the event loop goes on (io_uring(7)).

A thread that waits for a disk has to ask for the interpreter twice for each write, and a busy loop gives it up late:
that was most of what a producer waited for beside other work.  The kernel needs no interpreter: one call of 50 us hands
a write over, and never waits itself (what would have to, a thread of the kernel's does); the ring becomes readable when
the write is done.

Linux has had it since 5.6, and some sandboxes forbid it: Docker's default profile does.  Then a thread writes, as
before.  Linux' older way (io_submit(2)) is no third one: the call waits for the file system, or refuses (RWF_NOWAIT)
whenever the file's time of change has to move.

Called through ctypes, with the interpreter held, because giving it up costs more than the calls.  The libraries for it
ask for a kernel of 2025 (`liburing`), or take bytes only, which are not aligned as a direct write has to be (`caio`).
"""

import asyncio
import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable
from typing import Any, Final

# The same numbers on every machine.
_CALL_SETUP: Final = ctypes.c_long(425)
_CALL_ENTER: Final = ctypes.c_long(426)
_ENTRIES: Final = 1
_OFFSET_SUBMISSIONS: Final = 0x10000000
_FEATURES: Final = 1 << 0 | 1 << 3  # both rings in one mapping; of Linux 5.6, which has the operation, too
_ENTER_GETEVENTS: Final = 1
_OPERATION_WRITE: Final = 23
_SUBMISSION: Final = struct.Struct("<B3xiQQI28x")  # operation, descriptor, position, address, size
_COMPLETION: Final = struct.Struct("<QiI")  # data, result, flags
_LEFT_TO_A_THREAD: Final = frozenset(
    (errno.EAGAIN, errno.EINTR, errno.EINVAL, errno.EOPNOTSUPP, errno.ECANCELED, errno.ENOMEM)
)
"""The kernel could not try, or does not know how."""


class KernelWrites:
    """One write at a time; `report` is called on the loop with None, or with why it failed.

    BlockingIOError says that any part may be written, and that the caller is to write it again in a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[OSError | None], None]) -> None:
        """OSError when the kernel has no such rings, or a sandbox forbids them."""
        self._call: Any = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        params = (ctypes.c_uint32 * 30)()  # struct io_uring_params
        ring = self._call(_CALL_SETUP, ctypes.c_long(_ENTRIES), ctypes.byref(params))
        if ring < 0:
            raise _os_error()
        self._ring = ring
        try:
            if params[5] & _FEATURES != _FEATURES:
                raise OSError(errno.ENOSYS, "its rings are too old")
            self._map(params)
        except OSError:
            os.close(ring)
            raise
        self._loop = loop
        self._report = report
        self._data: memoryview | None = None
        """What is being written; the kernel reads from it."""
        loop.add_reader(ring, self._done)

    def _map(self, params: "ctypes.Array[ctypes.c_uint32]") -> None:
        submissions, completions = params[0], params[1]
        at, seen = params[10:20], params[20:30]  # struct io_sqring_offsets, io_cqring_offsets
        size = max(at[6] + 4 * submissions, seen[5] + _COMPLETION.size * completions)
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._memory = mmap.mmap(self._ring, size, flags=shared)
        self._submission = mmap.mmap(self._ring, 64 * submissions, flags=shared, offset=_OFFSET_SUBMISSIONS)
        number = ctypes.c_uint32.from_buffer
        self._submitted = number(self._memory, at[1])
        self._seen, self._completed = number(self._memory, seen[0]), number(self._memory, seen[1])
        self._seen_mask, self._completions = number(self._memory, seen[2]).value, seen[5]
        number(self._memory, at[6]).value = 0  # the one place of the one submission

    def begin(self, descriptor: int, data: memoryview, position: int) -> bool:
        """Begin to write `data`; False when the kernel does not take it now.

        The file is open for direct writes; address, size and position are multiples of its block.
        """
        assert self._data is None
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        _SUBMISSION.pack_into(self._submission, 0, _OPERATION_WRITE, descriptor, position, address, len(data))
        self._submitted.value += 1
        if self._enter(submit=1, wait=0) != 1:
            self._submitted.value -= 1
            return False
        self._data = data
        return True

    def close(self) -> None:
        """Wait for what is under way, which is not reported, and release the rings."""
        self._loop.remove_reader(self._ring)
        while self._data is not None and self._seen.value == self._completed.value:
            self._enter(submit=0, wait=1)
        self._data = None
        del self._submitted, self._seen, self._completed, self._memory, self._submission
        os.close(self._ring)

    def _enter(self, *, submit: int, wait: int) -> int:
        flags = _ENTER_GETEVENTS if wait else 0
        count: int = self._call(
            _CALL_ENTER, *map(ctypes.c_long, (self._ring, submit, wait, flags)), None, ctypes.c_long(0)
        )
        return count

    def _done(self) -> None:
        if self._data is None or self._seen.value == self._completed.value:
            return
        place = self._completions + (self._seen.value & self._seen_mask) * _COMPLETION.size
        _, result, _ = _COMPLETION.unpack_from(self._memory, place)
        self._seen.value += 1
        size, self._data = len(self._data), None
        error: OSError | None = None
        if -result in _LEFT_TO_A_THREAD or 0 <= result < size:
            error = BlockingIOError(errno.EAGAIN, "the kernel has not written it all")
        elif result < 0:
            error = OSError(-result, os.strerror(-result))
        self._report(error)


def _os_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
