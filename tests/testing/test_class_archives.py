"""Tools of a peer start with an archive of their classes, which is made once, and without one where it is no good."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.class_archives import archive_of, kafka_tool, pulsar_tool, using
from tests.integration.java_tools import needs_java
from tests.peers import installed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
ASK = "from tests.class_archives import kafka_tool; print(*kafka_tool())"
# Does with the options for its JVM what a JVM does with them.
SCRIPT = """#!/bin/sh
[ "$1" = install ] && exit 0
here=$(dirname "$0")
for tool; do case $tool in org.*|kafka.*) break ;; esac; done
for option; do
  case $option in
    -XX:DumpLoadedClassList=*)
      printf 'a/Any id: 0\\na/%s id: 1\\nan/Own id: 2 super: 0 source: a.jar\\n' "$tool" >"${option#*=}" ;;
    -XX:SharedClassListFile=*) cat "${option#*=}" >>"$here/listed" ;;
    -XX:SharedArchiveFile=*) echo archive >"${option#*=}" ;;
    -Xshare:dump) echo >>"$here/dumps"; [ ! -e "$here/fails" ] || exit 1 ;;
  esac
done
"""


def ask(folder: Path, processes: int = 1) -> list[str]:
    """The options for a tool's JVM that processes get that ask at once."""
    environment = {"MAGNETAR_PEERS": folder, "PEERS_HOME": folder / "home", "TMPDIR": folder}
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", ASK],
            cwd=REPOSITORY,
            env={**os.environ, **{name: str(path) for name, path in environment.items()}},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    answers = [process.communicate(timeout=500)[0] for process in asking]
    assert [process.returncode for process in asking] == [0] * processes
    return answers


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    script = tmp_path / "kafka"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    return tmp_path


def test_processes_that_ask_at_once_get_one_archive_of_what_all_tools_load(peer: Path) -> None:
    answers = ask(peer, processes=3)
    assert (peer / "dumps").read_text() == "\n"
    (archive,) = (peer / "home" / "class-archives").glob("kafka-*.jsa")
    assert all(answer.endswith(f" -XX:SharedArchiveFile={archive}\n") for answer in answers)
    assert archive.read_text() == "archive\n"
    listed = (peer / "listed").read_text().split("\n")
    assert {"a/Any", "a/org.apache.kafka.tools.TopicCommand", "a/kafka.admin.ConfigCommand"} <= set(listed)
    assert len(set(listed)) == len(listed)
    assert not [line for line in listed if "Own" in line or "id:" in line]


def test_where_none_can_be_made_tools_go_without_and_nobody_tries_again(peer: Path) -> None:
    (peer / "fails").touch()
    for _ in range(2):
        (answer,) = ask(peer)
        assert "SharedArchiveFile" not in answer
    assert (peer / "dumps").read_text() == "\n"


def test_other_jars_get_another_archive(peer: Path) -> None:
    (first,) = ask(peer)
    jar = peer / "home" / "kafka-1" / "lib" / "a.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    (second,) = ask(peer)
    assert "SharedArchiveFile" in second
    assert second != first
    assert len(list((peer / "home" / "class-archives").glob("kafka-*.jsa"))) == 1


class TestJava:
    pytestmark = needs_java

    def test_the_classes_of_kafkas_tools_come_from_their_archive(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        printed([*kafka_tool(f"-Xlog:class+load:file={log}"), *TOPICS])
        assert "org.apache.kafka.tools.TopicCommand source: shared objects file" in log.read_text()

    def test_the_classes_of_pulsars_tools_come_from_their_archive(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        printed([installed("pulsar"), *ADMIN], pulsar_tool(f"-Xlog:class+load:file={log}"))
        assert "org.apache.pulsar.admin.cli.PulsarAdminTool source: shared objects file" in log.read_text()

    @pytest.mark.parametrize("what", ["missing", "empty", "no archive", "cut short", "of other classes"])
    def test_a_jvm_says_nothing_of_an_archive_that_is_no_good(self, what: str, tmp_path: Path) -> None:
        made = archive_of("kafka")
        assert made is not None
        archive = tmp_path / "archive.jsa"
        match what:
            case "empty":
                archive.touch()
            case "no archive":
                archive.write_bytes(b"no archive" * 1000)
            case "cut short":
                archive.write_bytes(made.read_bytes()[:100_000])
            case "of other classes":
                archive.symlink_to(made)
        for java in JAVAS:
            shown, said = printed([java, "--version"])
            shown_with, said_with = printed([java, *using(archive), "--version"])
            assert (shown_with.replace(", sharing", ""), said_with) == (shown.replace(", sharing", ""), said)


# Newer ones say more.
JAVAS = ["java", *map(str, Path("/usr/lib/jvm").glob("*/bin/java"))]
TOPICS = ["org.apache.kafka.tools.TopicCommand", "--version"]
ADMIN = ["admin", "--version"]


def printed(command: list[str], environment: Mapping[str, str] = MappingProxyType({})) -> tuple[str, str]:
    """What a tool prints, and what it says on the side."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout
    return done.stdout, done.stderr
