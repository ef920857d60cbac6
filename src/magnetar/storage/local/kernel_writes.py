"""Writes that the kernel carries out while the event loop goes on (io_uring(7)).

A thread that waits for a disk needs the interpreter twice for each write, and a busy loop releases it late.  On a
busy server producers waited mostly for that.  The kernel needs no interpreter.  One call of 50 us hands a write over
and never waits: if the write has to wait, a thread of the kernel does.  The ring becomes readable when the write is
done.

Linux has had it since 5.6, but some sandboxes forbid it, as Docker's default profile does.  Then a thread writes.
Linux' older interface (io_submit(2)) is no alternative: its call waits for the file system, or refuses (RWF_NOWAIT)
whenever the file's time of modification has to change.

This module calls it through ctypes and keeps the interpreter meanwhile, because releasing it costs more than the
calls.  Python's libraries for it need a kernel of 2025 (`liburing`), or take only bytes objects, which do not have
the alignment that a direct write needs (`caio`).
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
_FEATURES: Final = 1 << 0 | 1 << 3  # both rings in one mapping; Linux 5.6, which has the write operation
_ENTER_GETEVENTS: Final = 1
_OPERATION_WRITE: Final = 23
_SUBMISSION: Final = struct.Struct("<B3xiQQI28x")  # operation, descriptor, position, address, size
_COMPLETION: Final = struct.Struct("<QiI")  # data, result, flags
_NUMBER_MAX: Final = 0xFFFFFFFF  # the rings' numbers wrap
_LEFT_TO_A_THREAD: Final = frozenset(
    (errno.EAGAIN, errno.EINTR, errno.EINVAL, errno.EOPNOTSUPP, errno.ECANCELED, errno.ENOMEM)
)
"""The kernel could not try the write, or does not know how."""


class KernelWrites:
    """One write at a time; `report` is called on the loop with None, or with why it failed.

    BlockingIOError means that any part may be written, and that the caller must write it again in a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[OSError | None], None]) -> None:
        """Raises OSError if the kernel has no such rings, or a sandbox forbids them."""
        self._call: Any = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        params = (ctypes.c_uint32 * 30)()  # struct io_uring_params
        ring = self._call(_CALL_SETUP, ctypes.c_long(_ENTRIES), ctypes.byref(params))
        if ring < 0:
            raise _os_error()
        self._ring = ring
        # Made once, because making the numbers of a call takes longer than the call.
        self._submit = _entering(ring, submit=1, wait=0, flags=0)
        self._wait = _entering(ring, submit=0, wait=1, flags=_ENTER_GETEVENTS)
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
        """The data of the write that is under way; the kernel reads from it."""
        loop.add_reader(ring, self._done)

    def _map(self, params: "ctypes.Array[ctypes.c_uint32]") -> None:
        submissions, completions = params[0], params[1]
        at, seen = params[10:20], params[20:30]  # struct io_sqring_offsets, io_cqring_offsets
        size = max(at[6] + 4 * submissions, seen[5] + _COMPLETION.size * completions)
        shared = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._memory = mmap.mmap(self._ring, size, flags=shared)
        self._submission = mmap.mmap(self._ring, 64 * submissions, flags=shared, offset=_OFFSET_SUBMISSIONS)
        self._numbers = memoryview(self._memory).cast("I")
        self._submitted_at, self._seen_at, self._completed_at = at[1] // 4, seen[0] // 4, seen[1] // 4
        self._seen_mask, self._completions = self._numbers[seen[2] // 4], seen[5]
        self._numbers[at[6] // 4] = 0  # the ring has one slot, for the one submission

    def begin(self, descriptor: int, data: memoryview, address: int, position: int) -> bool:
        """Begin to write `data`, whose first byte is at `address` in memory; false if the kernel does not take it
        now.

        The file is open for direct writes; address, size and position are multiples of its block.
        """
        assert self._data is None
        _SUBMISSION.pack_into(self._submission, 0, _OPERATION_WRITE, descriptor, position, address, len(data))
        numbers, at = self._numbers, self._submitted_at
        submitted = numbers[at]
        numbers[at] = submitted + 1 & _NUMBER_MAX
        if self._call(*self._submit) != 1:
            numbers[at] = submitted
            return False
        self._data = data
        return True

    def close(self) -> None:
        """Wait for the write that is under way, without reporting it, and release the rings."""
        self._loop.remove_reader(self._ring)
        numbers = self._numbers
        while self._data is not None and numbers[self._seen_at] == numbers[self._completed_at]:
            self._call(*self._wait)
        self._data = None
        del numbers, self._numbers, self._memory, self._submission
        os.close(self._ring)

    def _done(self) -> None:
        data, numbers = self._data, self._numbers
        seen = numbers[self._seen_at]
        if data is None or seen == numbers[self._completed_at]:
            return
        place = self._completions + (seen & self._seen_mask) * _COMPLETION.size
        _, result, _ = _COMPLETION.unpack_from(self._memory, place)
        numbers[self._seen_at] = seen + 1 & _NUMBER_MAX
        self._data = None
        if result == len(data):
            self._report(None)
        elif result >= 0 or -result in _LEFT_TO_A_THREAD:
            self._report(BlockingIOError(errno.EAGAIN, "the kernel has not written it all"))
        else:
            self._report(OSError(-result, os.strerror(-result)))


def _entering(ring: int, *, submit: int, wait: int, flags: int) -> tuple[ctypes.c_long | None, ...]:
    """The arguments of the call that submits `submit` writes and waits for `wait` of them."""
    numbers = map(ctypes.c_long, (ring, submit, wait, flags))
    return (_CALL_ENTER, *numbers, None, ctypes.c_long(0))


def address_of(data: memoryview) -> int:
    """The address of the first byte in memory; `data` must be writable."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def _os_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))
