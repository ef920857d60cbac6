"""What docs/operating says of Spark Connect and of Declarative Pipelines, done as it says.

The pages' own blocks are run, with free ports instead of the usual ones, in a folder of their own.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pyarrow.parquet as pq
import pytest

from magnetar.testing.server import MagnetarProcess, free_ports
from tests.spark.writers import Writers

REPOSITORY = Path(__file__).resolve().parents[2]
OPERATING = REPOSITORY / "docs" / "operating"
RUN_S = 300.0  # a machine with nothing else to do needs a tenth of that

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(1200),
]


class Page:
    """Runs the shell blocks of a page."""

    def __init__(self, name: str, folder: Path, words: dict[str, str]) -> None:
        self.folder = folder
        self._blocks = re.findall(r"^```sh\n(.*?)^```$", (OPERATING / name).read_text(), re.M | re.S)
        self._words = words
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(REPOSITORY / "src"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def script(self, *words: str) -> str:
        """The blocks that contain `words`, one after the other, with this test's addresses."""
        found = []
        for word in words:
            (block,) = [block for block in self._blocks if word in block]
            for said, meant in self._words.items():
                block = block.replace(said, meant)
            found.append(block)
        return "set -e\n" + "".join(found)

    def spawn(self, *words: str) -> "subprocess.Popen[str]":
        with (self.folder / "log").open("w") as log:
            return subprocess.Popen(
                ["bash", "-c", self.script(*words)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and everything that was said."""
        process = self.spawn(*words)
        try:
            code = process.wait(RUN_S)
        finally:
            end(process)
        return code, (self.folder / "log").read_text()


def end(process: "subprocess.Popen[str]") -> None:
    """The whole group: Python daemons may outlive the JVM."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def addresses(server: MagnetarProcess) -> dict[str, str]:
    return {"http://127.0.0.1:8080": server.http_url, "127.0.0.1:9092": server.bootstrap}


@pytest.fixture
def connect(addresses: dict[str, str], tmp_path: Path) -> Iterator[Page]:
    (port,) = free_ports(1)
    page = Page("spark-connect.md", tmp_path, {**addresses, "15002": str(port)})
    shutil.copy(REPOSITORY / "docs" / "examples" / "spark_connect.py", tmp_path)
    process = page.spawn("JAVA_HOME", "SparkConnectServer")
    log = (tmp_path / "log").rename(tmp_path / "server-log")
    try:
        give_up_at = time.monotonic() + RUN_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < give_up_at, log.read_text()
            time.sleep(0.2)
        yield page
    finally:
        end(process)


def test_the_example_of_spark_connect(connect: Page, writers: Writers) -> None:
    writers.create("orders", partitions=2)
    writers.kafka("orders", [(b"ann", b"1"), (b"bob", b"10"), (b"ann", b"2")])
    writers.pulsar_rows("orders", [("bob", b"20")], partition=1)
    writers.create("totals")
    code, said = connect.run("spark_connect.py")
    assert code == 0, said
    lines = said.splitlines()
    assert "4 records in orders" in lines
    found = {
        line.partition(" ")[0]: line.partition(" ")[2] for line in lines if line.startswith(("ann ", "bob "))
    }
    assert {name: json.loads(text) for name, text in found.items()} == {
        "ann": {"orders": 2, "total": 3},
        "bob": {"orders": 2, "total": 30},
    }


def test_the_example_of_declarative_pipelines(
    server: MagnetarProcess, addresses: dict[str, str], writers: Writers, tmp_path: Path
) -> None:
    shutil.copytree(REPOSITORY / "docs" / "examples", tmp_path / "docs" / "examples")
    page = Page("spark-declarative-pipelines.md", tmp_path, addresses)
    writers.create("flights")
    writers.create("flights-late")
    flights = [("EWR", 5), ("JFK", 61), ("EWR", 100)]
    writers.kafka("flights", [(None, _flight(*flight)) for flight in flights])
    code, said = page.run("cp -r", "JAVA_HOME", "spark-pipelines run")
    assert (code, "Run is COMPLETED" in said) == (0, True), said
    warehouse = tmp_path / "delays" / "spark-warehouse"
    assert sorted(pq.read_table(warehouse / "flights").column("delay").to_pylist()) == [5, 61, 100]
    assert _delays(warehouse) == {"EWR": (2, 52.5), "JFK": (1, 61.0)}
    assert _committed(server, "flights-late") == 2

    # Again: what has come since, and nothing twice.
    writers.kafka("flights", [(None, _flight("LGA", 62))])
    page.folder = tmp_path / "delays"
    code, said = page.run("JAVA_HOME", "spark-pipelines run")
    assert (code, "Run is COMPLETED" in said) == (0, True), said
    assert sorted(pq.read_table(warehouse / "flights").column("delay").to_pylist()) == [5, 61, 62, 100]
    assert _delays(warehouse) == {"EWR": (2, 52.5), "JFK": (1, 61.0), "LGA": (1, 62.0)}
    assert _committed(server, "flights-late") == 3


def _flight(origin: str, delay: int) -> bytes:
    return json.dumps({"origin": origin, "dest": "SFO", "delay": delay}).encode()


def _committed(server: MagnetarProcess, topic: str) -> int:
    """How many records a consumer gets that reads what is committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "count",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    count = 0
    try:
        while True:
            message = consumer.poll(RUN_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                return count
            count += 1
    finally:
        consumer.close()


def _delays(warehouse: Path) -> dict[str, tuple[int, float]]:
    rows = pq.read_table(warehouse / "delays").to_pylist()
    return {row["origin"]: (row["flights"], row["delay"]) for row in rows}
