"""What a JVM has read and checked of its classes, in a file with which the next one starts: one for each peer's tools.

It takes half of the processor's time off a tool.  The first test that asks makes it, beside what the peers' scripts
have fetched: some tools work at a server and note the classes that they load, and a JVM writes these down.  A JVM
compares the file with itself and with its class path.  One that it does not fit goes on without, and says nothing.  So
do the tests where none could be made: an empty file says so, until there is another Java or other jars.

The options are for the tool's JVM alone: those in JAVA_TOOL_OPTIONS also reach the JVMs that the scripts ask for their
versions.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.testing.server import MagnetarProcess, ServerFailed
from tests.peers import PEERS_HOME, installed, one_at_a_time, pulsar_shell

FOLDER: Final = PEERS_HOME / "class-archives"
_TOOL_S: Final = 300.0
_QUIETLY: Final = ("-Xshare:auto", "-Xlog:cds*=off")
# Pulsar's tools have the folder of their log's settings in their class path, and an archive takes none that has files.
_NO_FILES: Final = FOLDER / "no-files"


class _Peer(NamedTuple):
    jars: str  # a pattern in PEERS_HOME
    # What some of its tools are told, with a server and an empty folder for what they read.
    tools: Callable[[MagnetarProcess, Path], Iterator[list[str]]]
    # The command line and the environment of a tool that is told that, with options for its JVM.
    call: Callable[[list[str], list[str]], tuple[list[str], dict[str, str]]]


def kafka_tool(*java_options: str) -> list[str]:
    """A command line that lacks the tool's class and its arguments."""
    return _kafka_tool([*java_options, *options_of("kafka")])


def pulsar_tool(*java_options: str) -> dict[str, str]:
    """What Pulsar's tools have in their environment."""
    return _pulsar_tool([*java_options, *options_of("pulsar")])


def using(archive: Path) -> list[str]:
    """The options of a JVM that starts with it, if it can."""
    return [*_QUIETLY, f"-XX:SharedArchiveFile={archive}"]


def options_of(peer: str) -> list[str]:
    """Those of a JVM whose class path begins with the peer's jars."""
    archive = archive_of(peer)
    return using(archive) if archive else []


def _kafka_tool(java_options: Iterable[str]) -> list[str]:
    return [installed("kafka"), "tool", "-Xms128m", "-Xmx128m", *java_options]


def _pulsar_tool(java_options: Iterable[str]) -> dict[str, str]:
    installed("pulsar")
    (settings,) = PEERS_HOME.glob("apache-pulsar-*/conf/log4j2.yaml")
    options = [f"-Dlog4j.configurationFile={settings}", *java_options]
    return {"PULSAR_LOG_CONF": str(_NO_FILES / settings.name), "PULSAR_EXTRA_OPTS": " ".join(options)}


@cache
def archive_of(peer: str) -> Path | None:
    """The file, which is made if need be.  None if there can be none."""
    installed(peer)
    file = FOLDER / f"{peer}-{_identity(peer)}.jsa"
    try:
        _NO_FILES.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            with one_at_a_time():
                if not file.exists():
                    _make(peer, file)
        return file if file.stat().st_size else None
    except OSError:
        return None


def _identity(peer: str) -> str:
    """What another Java, or other jars, have otherwise."""
    on_path = Path(os.path.realpath(shutil.which("java") or "java")).parent.parent
    files = [
        *{on_path / "lib/server/libjvm.so", *Path("/usr/lib/jvm").glob("*/lib/server/libjvm.so")},
        *PEERS_HOME.glob(_PEERS[peer].jars),
    ]
    facts = sorted((str(one), one.stat().st_size, one.stat().st_mtime_ns) for one in files if one.exists())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _make(peer: str, file: Path) -> None:
    for old in FOLDER.glob(f"{peer}-*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        made = folder / file.name
        try:
            with MagnetarProcess() as server:
                _train(peer, server, folder, made)
        except (subprocess.SubprocessError, ServerFailed):
            made.unlink(missing_ok=True)
        made.touch()
        made.rename(file)


def _train(peer: str, server: MagnetarProcess, folder: Path, made: Path) -> None:
    _, tools, call = _PEERS[peer]
    home, notes = folder / "home", folder / "classes"
    home.mkdir()

    def run(told: list[str], *java_options: str) -> None:
        command, environment = call(told, [f"-Duser.home={home}", *java_options])
        subprocess.run(
            command,
            env={
                **os.environ,
                "PULSAR_ADMIN_URL": server.http_url,
                "PULSAR_LOG_DIR": str(home),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOOL_S,
            check=True,
        )

    loaded: dict[str, None] = {}
    for told in tools(server, home):
        run(told, f"-XX:DumpLoadedClassList={notes}")
        loaded |= dict.fromkeys(_classes(notes.read_text()))
    notes.write_text("\n".join(loaded))
    # Of the last tool this JVM takes the class path and nothing else.
    run(told, "-Xshare:dump", f"-XX:SharedClassListFile={notes}", f"-XX:SharedArchiveFile={made}")


def _classes(notes: str) -> Iterator[str]:
    """The lines of a JVM's list without the numbers, which each list begins anew."""
    for line in notes.splitlines():
        if " source:" not in line:  # a class loader of the program's own
            yield line.partition(" id:")[0]


def _tools_of_kafka(server: MagnetarProcess, _: Path) -> Iterator[list[str]]:
    for tool, *arguments in (
        ("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "t"),
        ("org.apache.kafka.tools.ConsoleProducer", "--topic", "t"),
        ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", "t", "--timeout-ms", "1000"),
        ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--all-groups"),
        ("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics"),
    ):
        yield [tool, "--bootstrap-server", server.bootstrap, *arguments]


def _tools_of_pulsar(server: MagnetarProcess, home: Path) -> Iterator[list[str]]:
    yield [installed("pulsar"), "admin", "topics", "list", "public/default"]
    commands = ["admin topics list public/default", "admin namespaces policies public/default"]
    yield pulsar_shell(server.http_url, server.pulsar_url, commands, home)


_PEERS: Final = {
    "kafka": _Peer(
        "kafka-*/lib/*.jar", _tools_of_kafka, lambda told, options: ([*_kafka_tool(options), *told], {})
    ),
    "pulsar": _Peer(
        "apache-pulsar-*/lib/*.jar", _tools_of_pulsar, lambda told, options: (told, _pulsar_tool(options))
    ),
}
