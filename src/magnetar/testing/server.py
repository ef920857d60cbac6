"""A real server for a test, which starts it as a user does, and can kill it.

    from magnetar.testing.server import MagnetarProcess

    with MagnetarProcess(settings={"num.partitions": "4"}) as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        ...
        server.kill()       # SIGKILL: nothing is flushed, no destructor runs
        server.restart()    # the same data, the same ports: clients reconnect by themselves

It owns one child process (`magnetar standalone`), its ports, its log and, unless the caller passes one, its data
directory.  Leaving the block ends the child with SIGTERM, requires exit code 0 and removes the temporary data.  So a
server that died or hung fails the test, even if the test itself did not notice.

Ports are below the kernel's ephemeral range, and stay the same over restarts.  Inside that range, a client that
reconnects to a dead server can get the server's own port as its source port, connect to itself and block the restart.
This is rare in one test, and certain in a thousand kills.

A port that a process has chosen is free until its server listens, so the process reserves it (`ports.py`): no other
test of this machine chooses it meanwhile.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, ClassVar, Protocol, Self

from magnetar.testing.ports import free_ports as free_ports  # a part of what this module offers

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 20.0
ENDING_S = 3.0
LOG_TAIL_LINES = 30

# ApiVersions version 0, with its size, a correlation id and no client id: every broker answers it.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_LISTENER = re.compile(r"^\s*kafka\b.*?\b[A-Z][A-Z_]*://(?P<address>\S+:\d+)")
_READY = re.compile(r"\bready\b")


class ServerFailed(Exception):
    """The server did not start, did not stop, or ended by itself; the text has the end of its log."""


class Child(Protocol):
    """A server's process: what is used of `subprocess.Popen`."""

    pid: int
    returncode: int | None
    stdout: IO[str] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


class Start(Protocol):
    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> Child: ...


def cold_start(command: Sequence[str], environment: Mapping[str, str]) -> Child:
    """Start a server as a user does."""
    return subprocess.Popen(  # noqa: S603 - the caller's own command line
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


class MagnetarProcess:
    """`magnetar standalone` as a child process, while a `with` block runs.

    settings     passed as `--set key=value`, with Kafka's key names
    arguments    more arguments, e.g.  `["--log-level", "debug"]`
    host         the address to listen on; None: the server's settings decide
    nodes        broker ids in the one process, each with a port of its own (`ports`)
    data_dir     kept if given; otherwise a temporary one is created and removed
    command      the command to run instead of the `magnetar` script beside this interpreter
    environment  added to the environment of this process
    log_file     also gets the server's output, as it comes

    `starts` starts the process of all servers: a large test run may have another way (`tests/warm_starts.py`).
    """

    starts: ClassVar[Start] = staticmethod(cold_start)

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        host: str | None = "127.0.0.1",
        nodes: int = 1,
        data_dir: Path | str | None = None,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        log_file: Path | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self.ports = free_ports(nodes)
        self.http_port, self.pulsar_port = free_ports(2)
        self._made_data_dir = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="magnetar-test-") if data_dir is None else data_dir)
        self._command = [*(command or default_command()), "standalone"]
        self._command += ["--data-dir", str(self.data_dir), "--http-port", str(self.http_port)]
        self._command += ["--pulsar-port", str(self.pulsar_port)]
        if host is not None:
            self._command += ["--host", host]
        if "listeners" not in (settings or {}):
            self._command += ["--kafka-port", str(self.ports[0])]
        if nodes > 1:
            self._command += ["--nodes", str(nodes)]
        for key, value in (settings or {}).items():
            self._command += ["--set", f"{key}={value}"]
        self._command += arguments
        self._environment = {**os.environ, **(environment or {})}
        self._log_file = log_file
        self._ready_timeout_s = ready_timeout_s
        self._process: Child | None = None
        self._reader: threading.Thread | None = None
        self._started = threading.Event()  # ready, or the output has ended
        self._ready = False
        self._killed = False
        self._lines: list[str] = []
        self.listeners: list[str] = []
        self._spawned_at = 0.0
        self.start_seconds = 0.0  # from the start of the process to its `ready` line

    # -- what a client needs

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node, for `bootstrap.servers`."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pulsar_url(self) -> str:
        """The service URL for Pulsar clients."""
        return f"pulsar://127.0.0.1:{self.pulsar_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def pid(self) -> int:
        """The running server's process id.  Raises ServerFailed if there is none."""
        if self._process is None or self._process.poll() is not None:
            raise self._failure("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The whole output of the server since the first start, including restarts."""
        return "".join(self._lines)

    # -- life and death

    def start(self) -> None:
        """Start and wait for the `ready` line.  Raises ServerFailed if it does not come in time."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start without waiting, for a test that wants to interrupt the start."""
        if self.running:
            raise self._failure("the server is already running")
        self._started.clear()
        self._ready = self._killed = False
        self.listeners = []
        self._spawned_at = time.monotonic()
        self._process = self.starts(self._command, self._environment)
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def wait_ready(self) -> None:
        """Wait for the `ready` line of a spawned server.  Raises ServerFailed if it does not come in time."""
        in_time = self._started.wait(self._ready_timeout_s)
        if not self._ready:
            self._signal(signal.SIGKILL)
            code = self._reap()
            what = f"ended with {code}" if in_time else f"was not ready after {self._ready_timeout_s:g} s"
            raise self._failure(f"the server {what}: {' '.join(self._command)}")
        self.start_seconds = time.monotonic() - self._spawned_at

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the server ends by itself, and return its exit code.  Raises ServerFailed if it does not."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the server was still running after {timeout_s:g} s") from None

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._killed = True
        self._signal(signal.SIGKILL)
        self._reap()

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM, and wait.  Raises ServerFailed if it takes longer than `timeout_s` or does not end with 0."""
        self._signal(signal.SIGTERM)
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"the server did not stop within {timeout_s:g} s of SIGTERM") from None
        if code := self._reap():
            raise self._failure(f"the server ended with {code} instead of 0")

    def restart(self) -> None:
        """Start again on the same data and ports; stops the server first if it is running."""
        if self.running:
            self.terminate()
        self.start()

    def check(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Raise ServerFailed if the server has ended, or a node does not answer at its port without TLS within
        `timeout_s`.

        A server that does not answer is ended by SIGABRT: with `PYTHONFAULTHANDLER` in its environment, its log then
        ends with the stacks of its threads.
        """
        assert self._process is not None
        silent = [
            port for port in self.ports if not self.running or not answers("127.0.0.1", port, timeout_s)
        ]
        if not silent:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)  # its ports close before the process ends
        if not self.running:
            raise self._failure(f"the server ended by itself with {self._reap()}")
        self._killed = True
        self._signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        self._signal(signal.SIGKILL)  # a stopped process reacts to no other signal
        code = self._reap()
        raise self._failure(
            f"the server did not answer at port {silent[0]} within {timeout_s:g} s, and ended with {code} when it was"
            " aborted"
        )

    def close(self) -> None:
        """Stop if running, and remove the temporary data.  Raises ServerFailed if the server had ended by itself."""
        try:
            if self._process is None:
                return
            if self.running:
                self.terminate()
            elif not self._killed and self._process.returncode != 0:
                raise self._failure(f"the server ended by itself with {self._process.returncode}")
        finally:
            if self._made_data_dir:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            if self.running:  # the wait was interrupted
                self.kill()
            if self._made_data_dir:
                shutil.rmtree(self.data_dir, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ServerFailed as failure:
            if error is None:
                raise
            # The test's own failure stays the main error; a note adds what happened to the server.
            error.add_note(str(failure))

    # -- inside

    def _read(self, output: IO[str]) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(output)
            copy = stack.enter_context(self._log_file.open("a", buffering=1)) if self._log_file else None
            for line in output:
                self._lines.append(line)
                if copy is not None:
                    copy.write(line)
                if match := _LISTENER.search(line):
                    self.listeners.append(match["address"])
                elif not self._ready and _READY.search(line):
                    self._ready = True
                    self._started.set()
        self._started.set()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise self._failure("the server was never started")
        self._process.send_signal(number)  # does nothing once the process has been reaped

    def _reap(self) -> int:
        assert self._process is not None
        assert self._reader is not None
        code = self._process.wait()
        self._reader.join(STOP_TIMEOUT_S)
        return code

    def _failure(self, sentence: str) -> ServerFailed:
        tail = "".join(self._lines[-LOG_TAIL_LINES:]).rstrip() or "(nothing)"
        return ServerFailed(f"{sentence}\nthe end of its log:\n{tail}")


def default_command() -> list[str]:
    """The `magnetar` script beside this interpreter.  Raises ServerFailed if there is none."""
    script = Path(sysconfig.get_path("scripts")) / "magnetar"
    if not script.exists():
        raise ServerFailed(f"magnetar is not installed for {sys.executable}: run `make install`")
    return [str(script)]


def answers(host: str, port: int, timeout_s: float) -> bool:
    """Whether a Kafka broker answers there within `timeout_s`, without TLS."""
    try:
        with socket.create_connection((host, port), timeout_s) as asking:
            asking.sendall(_API_VERSIONS)
            return bool(asking.recv(4))
    except OSError:
        return False
