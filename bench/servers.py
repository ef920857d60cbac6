"""Magnetar and Apache Kafka, started as their users start them, on free ports, with data in a folder that goes away.

Kafka comes from the peers' script (`kafka start DIR PORT key=value...`), which keeps the pid in DIR/pid; Magnetar is
the `magnetar` command of this environment.  Both log into their folder.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from bench import probe, process
from bench.process import RunFailed
from bench.pulsar_client import Addresses
from magnetar.testing.certificates import Authority
from magnetar.testing.server import ServerFailed, default_command, free_ports

HOST = "127.0.0.1"
READY_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 120.0
MAGNETAR = "magnetar"
BASE = "base"  # another Magnetar, such as the one before a change
KAFKA = "kafka"
SINK = "sink"

# Only so that a run's data is gone before the next one: Kafka otherwise keeps a deleted topic's files for a minute.
KAFKA_SETTINGS = ("log.segment.delete.delay.ms=100",)


class Server(ABC):
    """One server process with its data folder; start and stop as often as needed."""

    name: str

    def __init__(self, folder: Path, settings: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.settings = settings
        self.port = free_ports(2)[0]  # a Kafka node of the peers takes the port after its own as well
        self.secured_port = free_ports(1)[0]
        self.pid = 0
        self._authority: Authority | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def secured(self) -> str:
        """Where clients log in or speak TLS, with settings that open a listener there."""
        return f"{HOST}:{self.secured_port}"

    @property
    def authority(self) -> Authority:
        """It signs the server's certificate."""
        if self._authority is None:
            folder = self.folder / "certificates"
            folder.mkdir()
            self._authority = Authority(folder)
        return self._authority

    def expanded(self) -> list[str]:
        """The settings, with this server's own `{port}`, `{secured}`, `{controller}` and `{certificate}` in them."""
        own: dict[str, object] = {
            "port": self.port,
            "secured": self.secured_port,
            "controller": self.port + 1,
        }
        if any("{certificate}" in setting for setting in self.settings):
            own["certificate"] = self.authority.issue("server", hosts=["localhost", HOST]).both
        return [setting.format(**own) for setting in self.settings]

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> float:
        """Seconds from the process's start until it serves."""
        with self._failing("start"):
            ready = self._start()
            return ready - process.started_at(self.pid)

    def wait_for_topics(self, count: int) -> float:
        """Seconds from the process's start until Metadata lists `count` topics that all have a leader."""
        with self._failing("serve its topics"):
            ready = probe.wait_until(
                HOST,
                self.port,
                lambda answer: answer.topics_serving >= count,
                seconds_max=READY_SECONDS_MAX,
                alive=self.alive,
                all_topics=True,
            )
            return ready - process.started_at(self.pid)

    @abstractmethod
    def _start(self) -> float:
        """Start, set `pid`, and return when it served (Kafka's door: the first Metadata), on CLOCK_BOOTTIME."""

    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    def stop(self) -> None:
        """End the process and wait until it is gone; nothing to do where it does not run."""

    def discard(self) -> None:
        """Stop, and delete the data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except RunFailed as error:
            tail = (
                " | ".join(self.log.read_text(errors="replace").splitlines()[-4:])
                if self.log.exists()
                else ""
            )
            raise RunFailed(
                f"{self.name} could not {what}: {error}. Its log ends: {tail or '(empty)'}"
            ) from error


class Magnetar(Server):
    name = MAGNETAR

    def __init__(self, folder: Path, settings: tuple[str, ...] = (), program: Path | None = None) -> None:
        """`program`: the `magnetar` of another installation; None is this environment's."""
        super().__init__(folder, settings)
        self.program = program
        self.process: subprocess.Popen[bytes] | None = None
        self.pulsar_port, self.http_port = free_ports(2)

    @property
    def pulsar(self) -> Addresses:
        return Addresses(f"pulsar://{HOST}:{self.pulsar_port}", f"http://{HOST}:{self.http_port}")

    def _start(self) -> float:
        command = magnetar_command() if self.program is None else [str(self.program)]
        command += ["standalone", "--data-dir", str(self.folder / "data"), "--host", HOST]
        command += ["--http-port", str(self.http_port), "--pulsar-port", str(self.pulsar_port)]
        settings = self.expanded()
        if not any(setting.startswith("listeners=") for setting in settings):
            command += ["--kafka-port", str(self.port)]
        for setting in settings:
            command += ["--set", setting]
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches the bench, which then ends its servers one by one.
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=None if self.program is None else elsewhere(),
            )
        self.pid = self.process.pid
        return _wait_for_brokers(self)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        if self.process is not None:
            process.end(self.process, grace_seconds=STOP_SECONDS_MAX)
            self.process = None


def elsewhere() -> dict[str, str]:
    """The environment of another installation's programs: this one's packages are not in it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def check_program(program: Path) -> None:
    """Raises RunFailed when another installation's `magnetar` does not start."""
    try:
        subprocess.run([program, "--version"], env=elsewhere(), capture_output=True, check=True, text=True)
    except subprocess.CalledProcessError as error:
        raise RunFailed(f"{program} --version failed: {_last_line(error.stderr)}") from error
    except OSError as error:
        raise RunFailed(f"{program} does not start: {error.strerror}") from error


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


class Base(Magnetar):
    """What is measured beside this environment's Magnetar, on the same terms."""

    name = BASE


class Sink(Server):
    """Only answers (`bench/sink.py`): what a client reaches against it is the client's own ceiling."""

    name = SINK

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.process: subprocess.Popen[bytes] | None = None

    def _start(self) -> float:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench.sink", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid
        return _wait_for_brokers(self)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        if self.process is not None:
            process.end(self.process, grace_seconds=STOP_SECONDS_MAX)
            self.process = None


class Peer(Server):
    """A server behind a script of the peers: `SCRIPT start DIR PORT ...` keeps the pid in DIR/pid."""

    def __init__(self, folder: Path, script: Path, settings: tuple[str, ...] = ()) -> None:
        super().__init__(folder, settings)
        self.script = script

    def alive(self) -> bool:
        with contextlib.suppress(OSError):
            os.kill(self.pid, 0)
            return self.pid != 0
        return False

    def stop(self) -> None:
        if self._written_pid():
            # The script sends TERM, waits half a minute, then KILL.
            command = [str(self.script), "stop", str(self.folder)]
            subprocess.run(command, check=False, stdin=subprocess.DEVNULL, capture_output=True)
        self.pid = 0

    def _written_pid(self) -> int:
        """0 while there is none."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "pid").read_text())
        return 0


class Kafka(Peer):
    name = KAFKA

    def _start(self) -> float:
        output = self.folder / "start.log"
        with output.open("ab") as log:
            starter = subprocess.Popen(
                [
                    str(self.script),
                    "start",
                    str(self.folder),
                    str(self.port),
                    *KAFKA_SETTINGS,
                    *self.expanded(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.pid = self._wait_for_pid(starter)
            ready = _wait_for_brokers(self)
            if starter.wait(READY_SECONDS_MAX) != 0:
                raise RunFailed(f"the peer's script failed; its output is {output}")
            return ready
        finally:
            if starter.poll() is None:
                starter.kill()
            starter.wait()

    def _wait_for_pid(self, starter: subprocess.Popen[bytes]) -> int:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if pid := self._written_pid():
                return pid
            if starter.poll() is not None:
                text = (self.folder / "start.log").read_text(errors="replace")
                raise RunFailed(f"the peer's script ended: {' | '.join(text.splitlines()[-3:])}")
            time.sleep(probe.POLL_SECONDS)
        raise RunFailed("the peer's script started no process")


def magnetar_command() -> list[str]:
    """The `magnetar` script beside this interpreter; raises RunFailed where it is not installed."""
    try:
        return default_command()
    except ServerFailed as error:
        raise RunFailed(str(error).partition("\n")[0]) from error


def find_peer(repository: Path, name: str) -> Path | None:
    """The peers' script of that name: in $MAGNETAR_PEERS, else in ../shared/peers beside the repository."""
    named = os.environ.get("MAGNETAR_PEERS")
    script = (Path(named) if named else repository.parent / "shared" / "peers") / name
    return script if os.access(script, os.X_OK) else None


def peers_home() -> Path:
    """Where the peers' scripts keep what they have fetched."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PEERS_HOME") or Path(cache) / "magnetar-peers")


def _wait_for_brokers(server: Server) -> float:
    return probe.wait_until(
        HOST,
        server.port,
        lambda answer: answer.brokers > 0,
        seconds_max=READY_SECONDS_MAX,
        alive=server.alive,
    )
