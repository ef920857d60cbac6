"""The audit log's file, or standard stream: the loop queues lines, and a thread writes them in order.

A line counts as handed over when the operating system has it.  So a killed server loses no such line, but a loss of
power may take those of the last seconds.  The thread does not sync, because no client waits for more than the write.

The thread appends to the file, and opens it again if it was moved or removed, so a program that rotates it need not
notify the server.  The thread repeats a failed write (a full disk) every second, after the bytes that were written;
meanwhile lines wait in memory, and callers do not wait.  `put` refuses a line for which there is no room, and its
caller counts it as lost.
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

QUEUE_BYTES_MAX: Final = 1 << 20  # a refusal or a login is queued only up to so many waiting bytes
CHANGES_BYTES_MAX: Final = 16 << 20  # a change is queued up to so many
BATCH_BYTES_MAX: Final = 256 << 10
RETRY_S: Final = 1.0
PATIENCE_S: Final = 1.0  # the answer to a change waits at most so long for its line
CLOSE_S_MAX: Final = 5.0
OWN_FILES: Final = (
    "metadata.sqlite",
    "lock",
)  # in the data folder; SQLite adds files whose names begin with the first one's and `-`

_Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class AuditLog:
    """See the module's text; an `AuditSink`.  `path` is None for a standard stream."""

    def __init__(self, path: Path | None, descriptor: int, clock: Clock) -> None:
        self._path = path
        self._descriptor = descriptor
        self._failures = RareLine(log, clock)
        self._changed = threading.Condition()
        # `_changed` guards the attributes that follow:
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
        """Open the log: a stream of `STREAMS`, or a path relative to `data_dir`.

        Raises:
            ConfigError: the file cannot be written, or is no audit log.
        """
        if target in STREAMS:
            return cls(None, (sys.stdout if target == "stdout" else sys.stderr).fileno(), clock)
        path = data_dir / os.path.expanduser(target)  # leaves `~name` as it is if there is no such user
        if path.parent == data_dir and path.name.partition("-")[0] in OWN_FILES:
            raise ConfigError(f"audit.log: {path} is a file of the server's own: name another one")
        try:
            _check_is_audit_log(path)
            return cls(path, _opened(path), clock)
        except (OSError, ValueError) as error:  # ValueError: the path has a NUL
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"audit.log: {path} cannot be written ({reason}): name a file in a folder that is there, and"
                " that this user may write to"
            ) from None

    @property
    def problem(self) -> str | None:
        """What is wrong, in a sentence for the operator, or None."""
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
        """Write the waiting lines, for at most `CLOSE_S_MAX` seconds, and close the log."""
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
        """The lines to write next, which stay in the queue until they are written; none at the end."""
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
        """Write lines, and repeat failed writes; false if the server stops before they are written."""
        data, at = b"".join(lines), 0
        while True:
            try:
                if self._was_moved():
                    self._open_anew()
                    at = data.rfind(b"\n", 0, at) + 1  # a half-written line goes whole to the new file
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
        """Report an error, and wait; whether to try again."""
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
        """Wake the callers that wait for the first `count` lines, or for fewer."""
        while self._waiters and self._waiters[0][0] <= count:
            _, loop, handed_over = self._waiters.popleft()
            with contextlib.suppress(RuntimeError):  # the loop has ended, and its callers with it
                loop.call_soon_threadsafe(_settle, handed_over)


def _check_is_audit_log(path: Path) -> None:
    """Refuse a file that exists and is no audit log.  Raises ConfigError, OSError, ValueError."""
    if path.is_file():
        with path.open("rb") as file:
            if file.read(1) not in (b"", b"{"):
                raise ConfigError(
                    f"audit.log: {path} is there and is no audit log: name another file, or move it"
                )


def _opened(path: Path) -> int:
    """Open a file for appending, and end its last line if a crash has cut it.  Raises OSError."""
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
