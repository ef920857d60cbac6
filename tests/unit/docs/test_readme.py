"""The README does what it says: its commands and programs run against a real server and print what it shows.

`localhost:9092` in it becomes the server's own address; a `$ ` line is a command, and what follows is its output.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.class_archives import kafka_tool, pulsar_tool
from tests.peers import installed, is_here

REPOSITORY = Path(__file__).parents[3]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.M | re.S)
JAVA_TOOLS = {
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
COMMAND_TIMEOUT_S = 300  # two seconds on an idle machine; a JVM starts for some

needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")

pytestmark = pytest.mark.clients


def block(language: str, word: str) -> str:
    """The one block of `language` that contains `word`."""
    found: list[str] = [text for kind, text in BLOCKS if kind == language and word in text]
    assert len(found) == 1, f"{len(found)} {language} blocks have {word!r}"
    return found[0]


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as started:
        yield started


@pytest.fixture(scope="session")
def java_tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with Kafka's console tools: the installed ones, or those of the peer that starts a real Kafka."""
    if shutil.which("kafka-topics.sh"):
        return {}
    if not is_here("kafka"):
        pytest.skip("needs Kafka's console tools, or Java and the script that fetches them")
    folder = tmp_path_factory.mktemp("kafka-tools")
    for name, java_class in JAVA_TOOLS.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(kafka_tool())} {java_class} "$@"\n')
        script.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def run_session(
    text: str, server: MagnetarProcess, environment: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run a block's commands one after the other and compare each one's output."""
    for step in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = step.partition("\n")
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.replace("localhost:9092", server.bootstrap)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
        shown = re.sub(r"\x1b\[\d*m", "", done.stdout)  # pulsar-admin resets colours that it has not set
        assert (done.returncode, shown) == (0, expected), f"{command}\n{done.stderr}"


def shape(line: str) -> str:
    """A line of the server's without its addresses and folders."""
    return re.sub(r"(?<=://)\S+|(?<=\s)/\S+", "...", line)


def test_the_server_starts_as_shown(server: MagnetarProcess) -> None:
    shown = block("console", "magnetar is ready").splitlines()[1:]
    said = [
        line for line in server.log.splitlines() if not line[0].isdigit()
    ]  # log lines begin with the time
    assert list(dict.fromkeys(map(shape, said))) == list(dict.fromkeys(map(shape, shown)))


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a JVM for each command
def test_the_session_with_pulsar_admin(server: MagnetarProcess, tmp_path: Path) -> None:
    if not is_here("pulsar"):
        pytest.skip("needs Java and the script that fetches Pulsar's tools")
    script = tmp_path / "pulsar-admin"
    script.write_text(
        f'#!/bin/sh\nPULSAR_ADMIN_URL={server.http_url} exec {shlex.quote(installed("pulsar"))} admin "$@"\n'
    )
    script.chmod(0o755)
    environment = {**pulsar_tool(), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    run_session(block("console", "pulsar-admin"), server, environment)


@needs_kcat
def test_the_first_session_with_kcat(server: MagnetarProcess) -> None:
    run_session(block("console", "kcat -P"), server)


@needs_kcat
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_first_session_with_the_console_tools(
    server: MagnetarProcess, java_tools: dict[str, str]
) -> None:
    run_session(block("console", "kcat -P"), server)
    run_session(block("console", "kafka-topics.sh"), server, java_tools)


@pytest.mark.parametrize(
    "imported", ["from confluent_kafka import Consumer, Producer\n\nserver", "import pulsar"]
)
def test_the_python_examples(server: MagnetarProcess, imported: str) -> None:
    program = block("python", imported).replace("localhost:9092", server.bootstrap)
    program = program.replace("pulsar://localhost:6650", server.pulsar_url)
    (expected,) = re.findall(r"^print\(.*#\s*(.*)$", program, re.M)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1:] == [expected]  # pulsar-client's log goes to standard output as well


def test_the_example_of_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(block("python", "MagnetarProcess"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
