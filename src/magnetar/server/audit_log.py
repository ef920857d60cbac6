"""The audit log's file, or standard stream: lines are taken on the loop, and written by a thread in their order.

A line counts as handed over when the operating system has it: a killed server loses none of those, a machine that
loses its power may lose the last seconds.  Nothing is synced, as no client waits for more than the write.

The file is appended to, and opened anew once it was moved away or removed: whoever rotates it has nothing to tell.  A
write that fails (a full disk) is tried again every second, behind the bytes of it that were written; meanwhile lines
wait in memory, and callers do not.  What finds no room there is lost, and counted by who gave it.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.errors import ConfigError
from magnetar.base.private import SECRET_MODE
from magnetar.base.rare_line import RareLine
from magnetar.base.settings_audit import STREAMS

log = logging.getLogger(__name__)

QUEUE_BYTES_MAX: Final = 1 << 20  # of refusals and logins that wait
CHANGES_BYTES_MAX: Final = 16 << 20  # of all that waits
BATCH_BYTES_MAX: Final = 256 << 10
RETRY_S: Final = 1.0
PATIENCE_S: Final = 1.0  # a change is answered whatever its line does
CLOSE_S_MAX: Final = 5.0
OWN_FILES: Final = (
    "metadata.sqlite",
    "lock",
)  # in the data folder; SQLite keeps more beside the first, behind `-`

_Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class AuditLog:
    """See the module's text; an `AuditSink`.  `path` is None for a standard stream."""

    def __init__(self, path: Path | None, descriptor: int, clock: Clock) -> None:
        self._path = path
        self._descriptor = descriptor
        self._failures = RareLine(log, clock)
        self._changed = threading.Condition()
        # What follows is changed under that:
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._put_count = 0
        self._written_count = 0
        self._waiters: deque[_Waiter] = deque()
        self._is_closing = False
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="magnetar-audit", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, target: str, data_dir: Path, clock: Clock) -> "AuditLog":
        """The log at a stream of `STREAMS`, or at a path that begins in `data_dir`.

        Raises:
            ConfigError: it cannot be written there, or what is there is another file.
        """
        if target in STREAMS:
            return cls(None, (sys.stdout if target == "stdout" else sys.stderr).fileno(), clock)
        path = data_dir / os.path.expanduser(target)  # a name of no user stays as it is
        if path.parent == data_dir and path.name.partition("-")[0] in OWN_FILES:
            raise ConfigError(f"audit.log: {path} is a file of the server's own: name another one")
        try:
            _check_is_audit_log(path)
            return cls(path, _opened(path), clock)
        except (OSError, ValueError) as error:  # a path with a NUL is the latter
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"audit.log: {path} cannot be written ({reason}): name a file in a folder that is there, and"
                " that this user may write to"
            ) from None

    @property
    def problem(self) -> str | None:
        """What is wrong, in a sentence for the operator; None for nothing."""
        return self._problem

    def put(self, line: bytes, *, is_change: bool) -> bool:
        """See `AuditSink`."""
        with self._changed:
            room = CHANGES_BYTES_MAX if is_change else QUEUE_BYTES_MAX
            if self._bytes + len(line) > room or self._is_closing:
                return False
            self._lines.append(line)
            self._bytes += len(line)
            self._put_count += 1
            self._changed.notify()
        return True

    async def handed_over(self) -> None:
        """See `AuditSink`."""
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._written_count >= self._put_count or self._problem is not None:
                return
            handed_over: asyncio.Future[None] = loop.create_future()
            count = self._put_count
            self._waiters.append((count, loop, handed_over))
        done, _ = await asyncio.wait([handed_over], timeout=PATIENCE_S)
        if done:
            return
        with self._changed:
            if self._written_count < count and self._problem is None:
                self._problem = (
                    "The audit log has not been written for a second: see to its disk, or its reader."
                )

    def close(self) -> None:
        """Write what waits, for as long as a stop has time for it."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S_MAX)
        if not self._thread.is_alive() and self._path is not None:
            os.close(self._descriptor)

    # --- on the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next():
            if not self._write_all(batch):
                return
            with self._changed:
                for _ in batch:
                    self._bytes -= len(self._lines.popleft())
                self._written_count += len(batch)
                self._problem = None
                self._release(self._written_count)

    def _next(self) -> list[bytes]:
        """Lines that are to be written next, which stay where they are until they are; none: the end."""
        with self._changed:
            while not self._lines and not self._is_closing:
                self._changed.wait()
            batch: list[bytes] = []
            size = 0
            for line in self._lines:
                size += len(line)
                if batch and size > BATCH_BYTES_MAX:
                    break
                batch.append(line)
            return batch

    def _write_all(self, lines: list[bytes]) -> bool:
        """Write until it is done; false when the server stops before."""
        data, at = b"".join(lines), 0
        while True:
            try:
                if self._was_moved():
                    self._open_anew()
                    at = data.rfind(b"\n", 0, at) + 1  # what was cut in two goes to the new file as a whole
                while at < len(data):
                    at += os.write(self._descriptor, data[at:])
            except OSError as error:
                if not self._wait_after(error):
                    return False
            else:
                return True

    def _was_moved(self) -> bool:
        if self._path is None:
            return False
        mine = os.fstat(self._descriptor)
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino)

    def _open_anew(self) -> None:
        assert self._path is not None
        descriptor = _opened(self._path)
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _wait_after(self, error: OSError) -> bool:
        """Whether to try again."""
        what = f"The audit log cannot be written ({error.strerror})"
        self._failures.warn(f"{what}; it is tried again every second", "attempts failed")
        with self._changed:
            self._problem = (
                f"{what}: see to its disk; lines wait in memory, and are lost when there are too many."
            )
            self._release(self._put_count)
            if not self._is_closing:
                self._changed.wait_for(lambda: self._is_closing, RETRY_S)
            return not self._is_closing

    def _release(self, count: int) -> None:
        """Those that wait for up to so many lines wait no more."""
        while self._waiters and self._waiters[0][0] <= count:
            _, loop, handed_over = self._waiters.popleft()
            with contextlib.suppress(RuntimeError):  # the loop has ended: so has who waited
                loop.call_soon_threadsafe(_settle, handed_over)


def _check_is_audit_log(path: Path) -> None:
    """A file of another kind that is there is not gone on with.  Raises ConfigError, OSError, ValueError."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(1) not in (b"", b"{"):
                raise ConfigError(
                    f"audit.log: {path} is there and is no audit log: name another file, or move it"
                )


def _opened(path: Path) -> int:
    """A file that is appended to, behind a whole line: a crash may have cut the last one."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, SECRET_MODE)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            os.write(descriptor, b"\n")
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
