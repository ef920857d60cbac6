"""Java programs of the tests, compiled once for each text: a JVM that is given a source compiles it at each start.

The classes lie beside what the peers' scripts have fetched, in a folder named by all that they are made of.  Old ones
stay, a few kilobytes each: another checkout may be running them.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.peers import PEERS_HOME, installed, kafka_jars, one_at_a_time

FOLDER: Final = PEERS_HOME / "classes"
_COMPILE_S: Final = 300.0


def with_kafka(source: Path) -> str:
    """The class path of a program over Kafka's jars."""
    jars = f"{kafka_jars()}/*"
    return f"{jars}:{classes(source, '-cp', jars)}"  # the jars first, as in the archives of their classes


def with_pulsar(source: Path) -> str:
    """The class path of a program over Pulsar's jars."""
    installed("pulsar")
    (jars,) = PEERS_HOME.glob("apache-pulsar-*/lib")
    return f"{jars}/*:{classes(source, '-cp', f'{jars}/*')}"


@cache
def classes(source: Path, *options: str) -> Path:
    """The folder with what javac makes of a program, given these options."""
    javac = os.path.realpath(shutil.which("javac") or "javac")
    made_of = "\n".join([javac, *options, source.read_text()])
    folder = FOLDER / f"{source.stem}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    if not folder.exists():
        with one_at_a_time():
            if not folder.exists():
                _compile(source, options, folder)
    return folder


def _compile(source: Path, options: Sequence[str], folder: Path) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        made = Path(name) / "made"
        done = subprocess.run(
            ["javac", "-proc:none", *options, "-d", str(made), str(source)],
            capture_output=True,
            text=True,
            timeout=_COMPILE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        made.rename(folder)
