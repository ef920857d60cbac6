"""Kafka's and Pulsar's own servers and tools: scripts fetch them once (`MAGNETAR_PEERS` names their folder)."""

import fcntl
import os
import shutil
import subprocess
import tempfile
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
    """The script's path, once what it runs has been fetched.

    Tests of several processes may ask at once, and the scripts fetch into the same files: one process at a time.
    """
    script = str(PEERS / name)
    with open(Path(tempfile.gettempdir()) / f"magnetar-peers-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [script, "install"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_S
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return script


def kafka_jars() -> Path:
    """The folder of Kafka's jars, once they have been fetched: for a program that a test starts and kills by itself."""
    installed("kafka")
    return PEERS_HOME / f"kafka-{KAFKA_VERSION}" / "lib"
