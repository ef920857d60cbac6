"""A standalone cluster from the pip package does what docs/operating/spark-cluster.md says.

The page's own blocks are run, with free ports instead of the usual ones, in a folder of their own.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess, free_ports

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "operating" / "spark-cluster.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
PARTITIONS = 4
COUNT = 4_000
START_SECONDS_MAX = 60.0
RUN_SECONDS_MAX = 200.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


def block(language: str, word: str) -> str:
    """The one block of `language` that contains `word`."""
    found: list[str] = [text for kind, text in BLOCKS if kind == language and word in text]
    assert len(found) == 1, f"{len(found)} {language} blocks have {word!r}"
    return found[0]


class Cluster:
    """What the page starts, each command in a process group of its own."""

    def __init__(self, server: MagnetarProcess, folder: Path) -> None:
        self.folder = folder
        master, *interfaces = free_ports(4)
        self.master = f"spark://127.0.0.1:{master}"
        self._words = {
            "127.0.0.1:7077": f"127.0.0.1:{master}",
            "--port 7077": f"--port {master}",
            "127.0.0.1:9092": server.bootstrap,
            "http://127.0.0.1:8080": server.http_url,
            "/var/lib/magnetar/": f"{server.data_dir}/",
            **{f"--webui-port {8090 + n}": f"--webui-port {port}" for n, port in enumerate(interfaces)},
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        sources = str(REPOSITORY / "src")
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": sources, "PYTHONUNBUFFERED": "1"}
        self._processes: list[subprocess.Popen[bytes]] = []

    def text(self, language: str, word: str) -> str:
        found = block(language, word)
        for said, meant in self._words.items():
            found = found.replace(said, meant)
        return found

    def spawn(self, command: str) -> subprocess.Popen[bytes]:
        with self.log(len(self._processes)).open("wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", f"{self.text('sh', 'export SPARK_HOME')}exec {_as_env(command)}"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    @contextlib.contextmanager
    def running(self, command: str) -> Iterator[None]:
        """`command` as long as the block: an application that stays has all cores, and the next one waits for them."""
        process = self.spawn(command)
        try:
            yield
        finally:
            _end(process)
            self._processes.remove(process)

    def log(self, number: int) -> Path:
        return self.folder / f"log-{number}"

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def until(self, holds: Callable[[], bool], what: str, seconds_max: float = START_SECONDS_MAX) -> None:
        deadline = time.monotonic() + seconds_max
        while not holds():
            ended = [each.args for each in self._processes if each.poll() is not None]
            logs = "\n".join(self.log(number).read_text()[-1500:] for number in range(len(self._processes)))
            assert not ended, f"{ended} has ended while waiting until {what}\n{logs}"
            assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what}\n{logs}"
            time.sleep(0.2)

    def close(self) -> None:
        for process in reversed(self._processes):
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process, and whatever is left of its group after 20 s."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _as_env(command: str) -> str:
    """`NAME=value program` as `exec` takes it."""
    return f"env {command}" if re.match(r"\w+=", command) else command


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    settings = {"log.segment.bytes": str(1 << 20), "pipelines.table.roots": str(folder / "tables")}
    with MagnetarProcess(settings=settings) as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for made in admin.create_topics(
            [NewTopic(topic, PARTITIONS, 1) for topic in ("orders", "loud-orders")]
        ).values():
            made.result(20)
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        for number in range(COUNT):
            producer.produce("orders", b"order %d" % number, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(20) == 0
        started = Cluster(server, folder)
        try:
            started.spawn(started.text("sh", "master.Master").strip())
            port = int(started.master.rpartition(":")[2])
            started.until(lambda: _listens(port), "the master listens")
            for command in started.text("sh", "worker.Worker").strip().splitlines():
                started.spawn(command)
            log = started.log(0)
            started.until(
                lambda: log.read_text().count("Registering worker") == 2, "both workers are registered"
            )
            yield started
        finally:
            started.close()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def values(cluster: Cluster, topic: str) -> list[bytes]:
    bootstrap = cluster._words["127.0.0.1:9092"]
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < COUNT and time.monotonic() < deadline:
        found += [message.value() or b"" for message in consumer.consume(1000, 0.5)]
    consumer.close()
    return found


def test_a_batch_and_a_stream_run_on_two_executors(cluster: Cluster) -> None:
    said = cluster.run([sys.executable, "-c", cluster.text("python", "session.start")])
    row = re.search(rf"Row\(.*={COUNT}, .*={PARTITIONS}, .*={COUNT // PARTITIONS - 1}\)", said)
    assert row is not None, said
    assert sorted(values(cluster, "loud-orders")) == sorted(b"ORDER %d" % number for number in range(COUNT))
    executors = [
        path for name in ("worker-1", "worker-2") for path in (cluster.folder / name).glob("app-*/*")
    ]
    assert len({path.parts[-3] for path in executors}) == 2, f"only {executors} took part"


def test_a_table_pipeline_runs_on_the_cluster(cluster: Cluster) -> None:
    import deltalake

    command = cluster.text("sh", "magnetar pipelines create").strip()
    folder = cluster.folder / "tables" / "orders"
    command = command.replace("/srv/tables/orders", str(folder))

    def rows() -> int:
        if not deltalake.DeltaTable.is_deltatable(str(folder)):
            return 0
        return int(deltalake.DeltaTable(str(folder)).count())

    with cluster.running(cluster.text("sh", "magnetar worker").strip()):
        cluster.run(["sh", "-c", command])
        cluster.until(lambda: rows() >= COUNT, "the table has every order", 120)
    assert rows() == COUNT
