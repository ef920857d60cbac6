"""A table pipeline under `kill -9`: of the driver, of Spark's Python workers, of the server, while records come in.

    python -m tests.spark.table_kills --rounds 20 --seed 7 [--format delta|iceberg|parquet] [--plain]

A producer writes numbered records, some of which cannot be decoded.  Each round waits for a batch to be committed, and
then a moment that the seed chooses, and kills one of the three, which then comes back.  In the end every offset that
was acknowledged to the producer is in the table once, or, if it cannot be decoded, in the dead-letter topic once.

With `--plain` there is no Spark: a process runs the same steps, batch after batch, from a note of what it is at, as
Spark keeps one.  A round then takes a second, and more of them hit a commit.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pyarrow.parquet
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from magnetar.base.errors import MagnetarError
from magnetar.pipelines.targets.iceberg.history import IcebergHistory
from magnetar.testing.server import MagnetarProcess
from tests.unit.pipelines.targets.test_targets import rows_of

TOPIC: Final = "killed"
PIPELINE: Final = "kills"
DEAD: Final = f"{TOPIC}-{PIPELINE}-DLQ"
PARTITIONS: Final = 3
VICTIMS: Final = ("driver", "worker", "worker", "server")
UNDECODABLE_EVERY: Final = 37
REST: Final = b"." * 2_000  # so that segments of a megabyte fill up meanwhile
PAUSE_S: Final = 0.01  # between records: about a hundred a second
ROUND_S: Final = 900.0  # on a machine that does other things too, Spark alone takes minutes to start
Place = tuple[int, int]  # partition, offset


class Producer(threading.Thread):
    """Writes until it is stopped; knows what was acknowledged."""

    def __init__(self, server: MagnetarProcess) -> None:
        super().__init__()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._enough = threading.Event()
        self.good: set[Place] = set()
        self.bad: set[Place] = set()
        self.failed: list[object] = []

    def run(self) -> None:
        number = 0
        while not self._enough.wait(PAUSE_S):
            is_bad = number % UNDECODABLE_EVERY == 5
            value = b"no json" if is_bad else b'{"n": %d, "rest": "%s"}' % (number, REST)
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        if self._producer.flush(300):
            self.failed.append("records are left")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
            return
        place = (message.partition(), message.offset())
        (self.bad if message.value() == b"no json" else self.good).add(place)

    def stop(self) -> None:
        self._enough.set()
        self.join()
        assert not self.failed, self.failed[:3]


# --- the driver, a process of its own --------------------------------------------------------------------------------


def drive(folder: Path, admin_url: str, bootstrap: str, form: str) -> None:
    """Run the pipeline, and start it again when it fails, as the worker does; until the test kills this process."""
    from magnetar.pipelines.kinds.kind import Context, Spec
    from magnetar.pipelines.kinds.table.kind import TableKind
    from magnetar.pipelines.spark import session

    kind = TableKind()
    config = kind.validate(
        {"topics": TOPIC, "path": str(folder / "table"), "format": form, "trigger": "500 milliseconds"}
    )
    spec = Spec(PIPELINE, "id", "table", config, PIPELINE)
    context = Context(admin_url, bootstrap, folder)
    spark = session.start("table kills", master="local[2]", shuffle_partitions=2)
    while True:
        try:
            query = kind.start(spark, spec, str(folder / "checkpoint"), context)
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  # whatever it is, the next start has to cope with it
            print("driver: the query ended:", str(error).splitlines()[0][:300], flush=True)
        time.sleep(0.5)


def drive_plainly(folder: Path, admin_url: str, bootstrap: str, form: str) -> None:
    """The same without Spark: plan a range, note it, write and commit it, note that; until the test kills it."""
    from magnetar.client.rest import RestClient
    from magnetar.pipelines.connector.read.filters import Restriction
    from magnetar.pipelines.connector.read.options import parse
    from magnetar.pipelines.connector.read.reader import plan_batch
    from magnetar.pipelines.kinds.table import batches
    from magnetar.pipelines.kinds.table.config import TableConfig, checked

    config = TableConfig(
        PIPELINE,
        checked({"topics": TOPIC, "path": str(folder / "table"), "format": form}),
        admin_url,
        bootstrap,
    )
    note = folder / "note.json"
    while True:
        found: dict[str, Any] = {"batch": -1, "done": True, "end": {}}
        if note.exists():
            found = json.loads(note.read_text())
        try:
            with RestClient(admin_url) as client:
                ends = client.offsets([(TOPIC, number, None) for number in range(PARTITIONS)])
            if found["done"]:
                start = found["end"] or {str(number): 0 for number in range(PARTITIONS)}
                end = {str(one.partition): one.last_stable for one in ends}
                if start == end:
                    time.sleep(0.05)
                    continue
                found = {"batch": found["batch"] + 1, "done": False, "start": start, "end": end}
                _noted(note, found)
            options = {
                "subscribe": TOPIC,
                "admin.url": admin_url,
                "descriptors": "true",
                "startingOffsets": json.dumps({TOPIC: found["start"]}),
                "endingOffsets": json.dumps({TOPIC: found["end"]}),
                "minPartitions": "4",
            }
            tasks = plan_batch(parse(options, streaming=False), Restriction())
            done = [
                batches.write(config, "plain", found["batch"], number, task.slices())
                for number, task in enumerate(tasks)
            ]
            batches.commit(config, done, found["batch"])
            _noted(note, {**found, "done": True})
        except MagnetarError as error:
            print("driver: again after:", str(error)[:300], flush=True)
            time.sleep(0.1)


def _noted(note: Path, found: dict[str, Any]) -> None:
    fresh = note.with_suffix(".new")
    fresh.write_text(json.dumps(found))
    fresh.replace(note)


class Driver:
    def __init__(self, folder: Path, server: MagnetarProcess, form: str, *, plain: bool) -> None:
        self._command = [sys.executable, "-m", "tests.spark.table_kills", "--drive", str(folder)]
        self._command += ["--plain"] * plain
        self._command += ["--admin-url", server.http_url, "--bootstrap", server.bootstrap, "--format", form]
        self._log = folder / "driver.log"
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self) -> None:
        """The driver and its JVM; what they leave behind has to end by itself."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self, choice: random.Random) -> str:
        """One of the Python processes below the JVM; which kind it was."""
        found = [(pid, text) for pid, text in _below(self._process.pid) if "python" in text.split("\0")[0]]
        if not found:
            return "no worker"
        pid, text = choice.choice(sorted(found))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return text.split("\0")[-2].rpartition(".")[2]

    def end(self) -> None:
        left = [pid for pid, _ in _below(self._process.pid)]
        self.kill()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3_000:]


def _below(root: int) -> Iterator[tuple[int, str]]:
    """The processes below one, and their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root:
            with suppress(OSError):
                yield pid, Path(f"/proc/{pid}/cmdline").read_text()


# --- what came of it -------------------------------------------------------------------------------------------------


def table_places(folder: Path, form: str) -> Counter[Place]:
    """How often each record is in the table, for a reader who knows nothing of us."""
    if form == "delta":
        try:
            tables = [DeltaTable(str(folder / "table")).to_pyarrow_table(columns=["__partition", "__offset"])]
        except TableNotFoundError:
            return Counter()
    elif form == "iceberg":
        tables = [] if progress(folder, form) < 0 else [rows_of(IcebergHistory(str(folder / "table")))]
    else:
        files = [path for path in (folder / "table").rglob("*.parquet") if "_magnetar" not in path.parts]
        tables = [pyarrow.parquet.read_table(path, columns=["__partition", "__offset"]) for path in files]
    found: Counter[Place] = Counter()
    for table in tables:
        found.update(
            zip(table.column("__partition").to_pylist(), table.column("__offset").to_pylist(), strict=True)
        )
    return found


def dead_places(server: MagnetarProcess) -> Counter[Place]:
    """Where the committed dead letters say that they lay."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": f"reader-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([DEAD])
    found: Counter[Place] = Counter()
    ended: set[Any] = set()
    try:
        while len(ended) < len(consumer.assignment()) or not ended:
            message = consumer.poll(60)
            assert message is not None, "the dead letters cannot be read"
            if message.error() is not None:
                ended.add(message.partition())
                continue
            headers: dict[str, Any] = dict(message.headers() or ())
            found[int(headers["magnetar.partition"]), int(headers["magnetar.offset"])] += 1
    finally:
        consumer.close()
    return found


def progress(folder: Path, form: str) -> int:
    """Grows with every commit."""
    if form == "iceberg":
        return IcebergHistory(str(folder / "table")).newest()
    pattern = "_delta_log/*.json" if form == "delta" else "_magnetar/*/*.json"
    return max((int(path.stem) for path in (folder / "table").glob(pattern)), default=-1)


def wait_for_commit(folder: Path, form: str, driver: Driver) -> None:
    before = progress(folder, form)
    deadline = time.monotonic() + ROUND_S
    while progress(folder, form) <= before:
        assert time.monotonic() < deadline, f"nothing is committed any more:\n{driver.last_words}"
        time.sleep(0.05)


def run(rounds: int, seed: int, form: str = "delta", *, plain: bool = False) -> dict[str, int]:
    """See the module's text.  Raises AssertionError; returns what was killed, and how many records there were."""
    choice = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="magnetar-table-kills-"))
    killed: Counter[str] = Counter()
    try:
        with MagnetarProcess(
            settings={"num.partitions": str(PARTITIONS), "log.segment.bytes": str(1 << 20)}
        ) as server:
            _declare(server)
            producer = Producer(server)
            producer.start()
            driver = Driver(folder, server, form, plain=plain)
            try:
                for number in range(rounds):
                    wait_for_commit(folder, form, driver)
                    time.sleep(choice.uniform(0, 1.5))
                    what = choice.choice(["driver", "driver", "server"] if plain else VICTIMS)
                    if what == "driver":
                        driver.kill()
                        driver.start()
                    elif what == "worker":
                        what = f"worker ({driver.kill_worker(choice)})"
                    else:
                        server.kill()
                        time.sleep(choice.uniform(0, 1))
                        server.restart()
                    killed[what.partition(" ")[0]] += 1
                    print(f"round {number}: killed {what}; {len(producer.good)} records so far", flush=True)
                producer.stop()
                _check(folder, form, server, producer, driver)
            finally:
                producer._enough.set()
                producer.join()
                driver.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**killed, "records": len(producer.good), "dead letters": len(producer.bad)}


def _check(folder: Path, form: str, server: MagnetarProcess, producer: Producer, driver: Driver) -> None:
    deadline = time.monotonic() + ROUND_S
    while not (
        producer.good <= table_places(folder, form).keys() and producer.bad <= dead_places(server).keys()
    ):
        assert time.monotonic() < deadline, f"records are missing:\n{driver.last_words}"
        time.sleep(1)
    for places, wanted in ((table_places(folder, form), producer.good), (dead_places(server), producer.bad)):
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"{len(twice)} records are there twice: {twice[:5]}"
        assert places.keys() == wanted


def _declare(server: MagnetarProcess) -> None:
    import urllib.request

    definition = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    request = urllib.request.Request(
        f"{server.http_url}/admin/v2/schemas/public/default/{TOPIC}/schema",
        json.dumps({"type": "JSON", "schema": json.dumps(definition), "properties": {}}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--format", choices=["delta", "iceberg", "parquet"], default="delta")
    parser.add_argument("--plain", action="store_true", help="without Spark")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--admin-url", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive is not None:
        act = drive_plainly if given.plain else drive
        act(given.drive, given.admin_url, given.bootstrap, given.format)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"table_kills --rounds {given.rounds} --seed {seed} --format {given.format}", flush=True)
    print(run(given.rounds, seed, given.format, plain=given.plain))


if __name__ == "__main__":
    main()
