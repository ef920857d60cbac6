"""Servers and commands of tests start without importing anything: a process of each worker has done it, and forks them.

A test run starts many hundred servers, and some hundred commands.  Nine tenths of the processor's time of a start are
imports, which are the same each time and were a quarter of what a run took.  What a server or a command does from its
command line on is untouched: settings, recovery, ports, signals, exit code.  A server's journal is as small as it can
be, unless the test says otherwise: a new one of the usual size is half a gigabyte of zeroes on the disk.

A server with another interpreter, with another program than `PROGRAMS` or with variables that an interpreter reads at
its own start is started as a user does, and so are all servers of tests/testing and of whatever runs outside of pytest.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from magnetar.base.settings_sources import environment_name
from magnetar.base.settings_table import JOURNAL_BYTES_MIN
from magnetar.testing.server import Child, MagnetarProcess, cold_start, default_command

PROGRAMS: Final = (Path(__file__).parent / "crash" / "power" / "small_server.py",)
"""Scripts that import nothing but what a server does, and end with its `main`."""

_PROGRAM: Final = Path(__file__).with_name("warm_server.py")
_READ_AT_START: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "NUMBA_", "LANG", "LC_", "TZ")
_SMALL: Final = {environment_name("journal.bytes"): str(JOURNAL_BYTES_MIN)}
_START_S_MAX: Final = 120.0


class Forked:
    """A server's process, as far as `subprocess.Popen` has to be like that."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired("magnetar", timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()


class WarmStarts:
    """What starts the servers of a process of pytest."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0  # of the servers that have ended
        self._began: Mapping[str, str] = {}
        self._orders: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._ordering = threading.Lock()
        self._started: queue.SimpleQueue[Forked | None] = queue.SimpleQueue()
        self._running: dict[int, Forked] = {}

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> Child:
        program, arguments = _forkable(command)
        with self._ordering:
            orders = self._begun()
            if arguments is None or self._is_read_at_start(environment):
                return cold_start(command, environment)
            reading, writing = os.pipe()
            try:
                server = self._fork(orders, arguments, {**_SMALL, **environment}, {writing: [1, 2]}, program)
            finally:
                os.close(writing)
        server.stdout = open(reading, encoding="utf-8", errors="replace")  # noqa: SIM115  the reader closes it
        return server

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: str, timeout_s: float
    ) -> "subprocess.CompletedProcess[str]":
        """What the `magnetar` command makes of these arguments, once it has ended."""
        command = [*default_command(), *arguments]
        with contextlib.ExitStack() as stack:
            given, out, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            given.write(stdin.encode())
            given.seek(0)
            with self._ordering:
                orders = self._begun()
                assert not self._is_read_at_start(environment)
                files = {given.fileno(): [0], out.fileno(): [1], errors.fileno(): [2]}
                process = self._fork(orders, command, environment, files)
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                raise
            for file in (out, errors):
                file.seek(0)
            return subprocess.CompletedProcess(command, code, out.read().decode(), errors.read().decode())

    def _begun(self) -> socket.socket:
        if self._orders is None:
            self._orders = self._begin()
        return self._orders

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._began = dict(os.environ)
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        threading.Thread(target=self._hear, args=(ours,), name="warm starts", daemon=True).start()
        return ours

    def close(self) -> None:
        """No server is started any more."""
        if self._orders is not None and self._program is not None:
            self._orders.shutdown(socket.SHUT_RDWR)
            self._program.wait()
            self._orders.close()

    def _is_read_at_start(self, environment: Mapping[str, str]) -> bool:
        """Whether an interpreter of this environment would start in another way."""
        return any(
            environment.get(name) != self._began.get(name)
            for name in {*environment, *self._began}
            if name.startswith(_READ_AT_START)
        )

    def _fork(
        self,
        orders: socket.socket,
        command: Sequence[str],
        environment: Mapping[str, str],
        files: Mapping[int, Sequence[int]],
        program: Path | None = None,
    ) -> Forked:
        """`files` says which descriptors each becomes."""
        order = {
            "command": [*command],
            "program": None if program is None else str(program),
            "environment": dict(environment),
            "folder": os.getcwd(),
            "places": [*map(list, files.values())],
        }
        socket.send_fds(orders, [json.dumps(order).encode()], [*files])
        forked = self._started.get(timeout=_START_S_MAX)
        assert forked is not None, "the process that forks servers has ended"
        return forked

    def _hear(self, orders: socket.socket) -> None:
        while message := orders.recv(1000):
            said: dict[str, Any] = json.loads(message)
            if "started" in said:
                server = self._running[said["started"]] = Forked(said["started"])
                self._started.put(server)
            else:
                self.cpu_seconds += said["cpu_seconds"]
                self._running.pop(said["ended"]).end(said["code"])
        self._started.put(None)


def run_command(
    *arguments: str, environment: Mapping[str, str], stdin: str = "", timeout_s: float = 60.0
) -> "subprocess.CompletedProcess[str]":
    """Run the `magnetar` command as a process of its own, with an input that is no terminal."""
    starts = MagnetarProcess.starts
    assert isinstance(starts, WarmStarts)
    return starts.run(arguments, environment, stdin, timeout_s)


def _forkable(command: Sequence[str]) -> tuple[Path | None, Sequence[str] | None]:
    """What of it is to be run if not `magnetar`, and its command line; None if it cannot be forked."""
    if list(command[:1]) == default_command():
        return None, command
    if command[0] == sys.executable and len(command) > 1 and Path(command[1]) in PROGRAMS:
        return Path(command[1]), command[1:]
    return None, None
