"""Kafka's and Pulsar's own servers and tools: scripts fetch them once (`MAGNETAR_PEERS` names their folder)."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

PEERS = Path(os.environ.get("MAGNETAR_PEERS") or Path(__file__).resolve().parents[2] / "shared" / "peers")
PEERS_HOME = Path(
    os.environ.get("PEERS_HOME")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magnetar-peers"
)
KAFKA_VERSION = os.environ.get("KAFKA_VERSION") or "4.3.1"  # as the script that fetches it has it
INSTALL_S = 900.0


def is_here(name: str) -> bool:
    """Whether there are the script of that peer and a Java to run it."""
    return (PEERS / name).exists() and shutil.which("java") is not None


@cache
def installed(name: str) -> str:
    """The script's path, once what it runs has been fetched; the scripts fetch into the same files."""
    script = str(PEERS / name)
    with one_at_a_time():
        done = subprocess.run(
            [script, "install"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_S
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return script


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Tests of several processes may ask at once for what is made once."""
    with open(Path(tempfile.gettempdir()) / f"magnetar-peers-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kafka_jars() -> Path:
    """The folder of Kafka's jars, once they have been fetched: for a program that a test starts and kills by itself."""
    installed("kafka")
    return PEERS_HOME / f"kafka-{KAFKA_VERSION}" / "lib"


def pulsar_shell(web: str, broker: str, commands: Sequence[str], home: Path) -> list[str]:
    """The command line of a `pulsar-shell` that runs all of them; `home` is an empty folder for what it reads."""
    installed("pulsar")
    (shell,) = PEERS_HOME.glob("apache-pulsar-*/bin/pulsar-shell")
    settings, script = home / "client.conf", home / "commands"
    settings.write_text(f"webServiceUrl={web}\nbrokerServiceUrl={broker}\n")
    script.write_text("".join(f"{command}\n" for command in commands))
    return [str(shell), "-c", str(settings), "-np", "-f", str(script)]
