"""The README's session with Spark does what it says, on a server that has its first session behind it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.server import MagnetarProcess

README = (Path(__file__).parents[2] / "README.md").read_text()
SESSION = README[README.index("## A first session with Spark") :]
FIRST_SESSION = README[: README.index("## A first session with Pulsar")]
SCRIPTS = str(Path(sys.executable).parent)
COMMAND_TIMEOUT_S = 500

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as started:
        (program,) = re.findall(r"^```python\n(from confluent_kafka .*?)^```$", FIRST_SESSION, re.M | re.S)
        run([sys.executable, "-c", program.replace("localhost:9092", started.bootstrap)], started)
        yield started


def run(command: list[str], server: MagnetarProcess) -> str:
    """What a command prints; it ends with 0."""
    done = subprocess.run(
        command,
        env={**os.environ, "MAGNETAR_URL": server.http_url},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(word: str) -> list[tuple[str, str]]:
    """The commands of the one console block that contains `word`, and what is shown of what each prints."""
    (block,) = [text for text in re.findall(r"^```console\n(.*?)^```$", SESSION, re.M | re.S) if word in text]
    steps = [step.partition("\n") for step in re.split(r"^\$ ", block, flags=re.M)[1:]]
    return [(command.replace(".venv/bin", SCRIPTS), shown) for command, _, shown in steps]


def test_the_statement_prints_what_is_shown(server: MagnetarProcess) -> None:
    ((command, shown),) = commands("magnetar sql")
    assert run(["bash", "-c", command], server) == shown


def test_the_job_prints_what_is_shown(server: MagnetarProcess) -> None:
    (program,) = re.findall(r"^```python\n(from magnetar.pipelines.spark .*?)^```$", SESSION, re.M | re.S)
    (expected,) = re.findall(r"^print\(.*#\s*(.*)$", program, re.M)
    printed = run([sys.executable, "-c", program.replace("http://localhost:8080", server.http_url)], server)
    assert printed.splitlines() == [expected]


def test_the_pipeline_makes_the_table(server: MagnetarProcess) -> None:
    from deltalake import DeltaTable

    (create, _), (status, _) = commands("pipelines create")
    run(["bash", "-c", create], server)
    table = str(server.data_dir / "tables" / "orders")
    offsets: list[int] = []
    # The test's own time-out ends it; the table is there, and empty, before its first rows.
    while len(offsets) < 1000:
        assert "RUNNING" in run(["bash", "-c", status], server)
        if DeltaTable.is_deltatable(table):
            offsets = DeltaTable(table).to_pyarrow_table().column("__offset").to_pylist()
    assert sorted(offsets) == list(range(1000))
