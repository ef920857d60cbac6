"""Kafka's and Pulsar's own tools, which need Java and the scripts that fetch them."""

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.class_archives import kafka_tool, pulsar_tool
from tests.java_classes import with_kafka
from tests.java_process import JavaProcess
from tests.peers import is_here, pulsar_shell

TOOL_S = 300.0  # two seconds on an idle machine
_TOOLS = Path(__file__).parent / "java" / "Tools.java"
_ENDED = re.compile(r"ended with (\d+)")
_EXECUTING = re.compile(r"^\[\d+/\d+\] Executing .*\n", re.MULTILINE)

needs_java = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not is_here("kafka"),
        reason="needs Java and the scripts that fetch Kafka's and Pulsar's tools (MAGNETAR_PEERS)",
    ),
]


def run(
    command: list[str],
    stdin: str = "",
    *,
    code: int = 0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a tool prints, which ends with `code`; where that is none of success, its errors as well."""
    done = _completed(command, stdin, environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


class KafkaTools(JavaProcess):
    """Kafka's tools, one after the other in one JVM: it takes the tenth part of what a JVM for each does."""

    def __init__(self, bootstrap: str) -> None:
        command = [*kafka_tool(), "-cp", with_kafka(_TOOLS), _TOOLS.stem]
        super().__init__(command, Path(os.devnull))
        self._bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, code: int = 0) -> str:
        """What a tool, named by its class, prints, as `run` has it."""
        self.write("\t".join([tool, "--bootstrap-server", self._bootstrap, *arguments]) + "\n")
        printed: list[str] = []
        for line in self.lines():
            if ended := _ENDED.fullmatch(line):
                output = "\n".join(printed)
                assert int(ended[1]) == code, output
                return output
            printed.append(line)
        raise AssertionError(f"the JVM has ended: {printed}")


def run_pulsar_shell(server: MagnetarProcess, commands: list[str]) -> list[str]:
    """What each command prints, such as `admin topics list public/default`, all run by one `pulsar-shell`.

    A JVM takes two seconds of a processor to start and a command a tenth, so tests of many commands share one.  All
    of them have to succeed.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        command = pulsar_shell(server.http_url, server.pulsar_url, commands, home)
        environment = {**pulsar_tool(f"-Duser.home={folder}"), "PULSAR_LOG_DIR": folder}
        done = _completed(command, "", environment)
    # It goes on after a command that fails; 4.0.8's `--fail-on-error` ends after one that does not, as well.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Reason:" not in done.stderr, done.stderr
    _, *outputs = _EXECUTING.split(done.stdout.removesuffix("Goodbye!\n"))
    assert len(outputs) == len(commands), done.stdout
    return [output.strip() for output in outputs]


def _completed(
    command: list[str], stdin: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
        env={**os.environ, **environment},
    )
