"""Servers of tests start without importing anything: a process of each worker has done it, and forks them.

A test run starts many hundred servers.  Nine tenths of the processor's time of a start are imports, which are the same
each time and were a quarter of what a run took.  What a server does from its command line on is untouched: settings,
recovery, ports, signals, exit code.

A server with another interpreter, with another program or with variables that an interpreter reads at its own start is
started as a user does, and so are all servers of tests/testing and of whatever runs outside of pytest.
"""

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from magnetar.testing.server import Child, cold_start, default_command

_PROGRAM: Final = Path(__file__).with_name("warm_server.py")
_READ_AT_START: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_", "TZ")
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
            with suppress(ProcessLookupError):
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
        with self._ordering:
            if self._orders is None:
                self._orders = self._begin()
            if list(command[:1]) != default_command() or self._is_read_at_start(environment):
                return cold_start(command, environment)
            return self._fork(self._orders, command, environment)

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

    def _fork(self, orders: socket.socket, command: Sequence[str], environment: Mapping[str, str]) -> Forked:
        order = {"command": [*command], "environment": dict(environment), "folder": os.getcwd()}
        reading, writing = os.pipe()
        try:
            socket.send_fds(orders, [json.dumps(order).encode()], [writing])
        finally:
            os.close(writing)
        server = self._started.get(timeout=_START_S_MAX)
        assert server is not None, "the process that forks servers has ended"
        server.stdout = open(reading, encoding="utf-8", errors="replace")  # noqa: SIM115  the reader closes it
        return server

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
