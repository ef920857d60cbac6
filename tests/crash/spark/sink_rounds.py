"""Kill everything around a query topic -> topic, again and again: each record is in its topic once, and in order.

    python -m tests.crash.spark.sink_rounds --rounds 20 --seed 1            # Spark
    python -m tests.crash.spark.sink_rounds --rounds 200 --seed 1 --plain   # the same steps without Spark, 1 s a round

One round: records flow in, the query copies them, and at a random moment one of these gets SIGKILL: the query's driver
and all that is in its process group; a Python worker of Spark's; the server; driver and server.  What is dead is
started again.  A query that ends by itself is started again as well, as a supervisor would, and has to say why.

In the end a reader of committed records has to find what was written: in each partition number 0, 1, 2...
"""

import argparse
import contextlib
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
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.crash.server.killing import REPOSITORY, Broken

PARTITIONS = 3
SOURCE, SINK = "kills-in", "kills-out"
RECORDS_PER_S = 600
RUN_SECONDS_MAX = 1.5  # after the query is under way again
PROGRESS_TIMEOUT_S = 300.0  # Spark takes its time to start on a busy machine
FAILURES_MAX = 3  # in a row, without a batch between them
SETTINGS = {"journal.bytes": str(64 << 20)}


class Feed(threading.Thread):
    """Writes numbered records to every partition of the source, and gives none of them up."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.counts = [0] * PARTITIONS
        self._stopped = threading.Event()
        self._lost: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
            }
        )

    def run(self) -> None:
        while not self._stopped.wait(0.05):
            for _ in range(RECORDS_PER_S // 20):
                partition = min(range(PARTITIONS), key=self.counts.__getitem__)
                value = b"%d %d" % (partition, self.counts[partition])
                self._producer.produce(SOURCE, value, partition=partition, on_delivery=self._delivered)
                self.counts[partition] += 1
            self._producer.poll(0)

    def stop(self) -> None:
        """Return when all records are acknowledged."""
        self._stopped.set()
        self.join()
        if self._producer.flush(PROGRESS_TIMEOUT_S) or self._lost:
            raise Broken(f"the source did not get its records: {self._lost[:1]}")

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            self._lost.append(str(error))


class Query:
    """The query as a process of its own, in a process group of its own."""

    def __init__(self, module: str, server: MagnetarProcess, folder: Path) -> None:
        self._command = [
            sys.executable,
            "-m",
            f"tests.crash.spark.{module}",
            server.bootstrap,
            server.http_url,
        ]
        self._command += [SOURCE, SINK, str(PARTITIONS), str(folder / "checkpoint")]
        self._log = folder / "query.log"
        self._process: subprocess.Popen[str] | None = None
        self._changed = threading.Condition()
        self.batches = 0  # heard of since the last start
        self.starts = 0
        self._failures = 0

    def start(self) -> None:
        self.batches = 0
        self.starts += 1
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                if line.startswith('{"batch"') and json.loads(line):
                    with self._changed:
                        self.batches += 1
                        self._failures = 0
                        self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for_batches(self, more: int) -> None:
        """Until so many more batches are committed; started again when it has ended by itself."""
        wanted = self.batches + more
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while self.batches < wanted:
            with self._changed:
                self._changed.wait(0.2)
            if self.batches < wanted:
                wanted -= self.restart_if_ended()
            if time.monotonic() > deadline:
                raise Broken(f"no batch in {PROGRESS_TIMEOUT_S:g} s; the query's log is {self._log}")

    def restart_if_ended(self) -> int:
        """Start it again when it has ended by itself: how many batches it had committed, then."""
        assert self._process is not None
        if self._process.poll() is None:
            return 0
        committed = self.batches
        self._failures += 1
        if "RowsLost" in self._log.read_text(errors="replace"):
            raise Broken(f"rows were lost; the query's log is {self._log}")
        if self._failures > FAILURES_MAX:
            raise Broken(f"the query fails again and again; its log is {self._log}")
        self.start()
        return committed

    def kill(self) -> None:
        """SIGKILL to the driver and everything that it has started."""
        assert self._process is not None
        helpers = self._descendants()
        for pid in [self._process.pid, *helpers]:
            _kill(pid)
        self._process.wait()

    def workers(self) -> list[int]:
        """Spark's Python processes: daemons, and the workers that they have made."""
        return [
            pid
            for pid in self._descendants()
            if b"pyspark" in _command_line(pid) or b"magnetar.pipelines" in _command_line(pid)
        ]

    def _descendants(self) -> list[int]:
        """Every process below the driver; Spark's daemons lead groups of their own."""
        assert self._process is not None
        parents: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
        found: list[int] = []
        waiting = [self._process.pid]
        while waiting:
            below = parents.get(waiting.pop(), [])
            found += below
            waiting += below
        return found


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
        os.kill(pid, signal.SIGKILL)


class Reader:
    """Reads committed records of the sink, and holds each partition to 0, 1, 2..."""

    def __init__(self, bootstrap: str) -> None:
        self._next = [0] * PARTITIONS
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "kills-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(SINK, n, 0) for n in range(PARTITIONS)])

    def read_up_to(self, counts: list[int], query: Query) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while self._next != counts:
            if time.monotonic() > deadline:
                raise Broken(f"committed are {self._next} of {counts} records")
            check_order(self._next, self._consumer.consume(5000, 0.5))
            query.restart_if_ended()
        check_order(self._next, self._consumer.consume(5000, 1.0))
        self._consumer.close()


def check_order(seen: list[int], messages: Sequence[confluent_kafka.Message]) -> None:
    """Hold each record to the number that its partition is at, and move that on."""
    for message in messages:
        if message.error() is not None:
            continue
        partition, number = map(int, (message.value() or b"").split())
        if message.partition() != partition or number != seen[partition]:
            raise Broken(
                f"partition {message.partition()} offset {message.offset()} holds record {number} of {partition},"
                f" not {seen[partition]}"
            )
        seen[partition] += 1


VICTIMS = ("driver", "server", "driver and server", "worker")


def run_rounds(
    server: MagnetarProcess, rounds: int, seed: int, folder: Path, module: str, say: Callable[[str], None]
) -> str:
    """Returns the closing line, raises Broken."""
    choose = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, SINK)]).values():
        made.result(30)
    feed, query = Feed(server.bootstrap), Query(module, server, folder)
    killed = dict.fromkeys(VICTIMS, 0)
    began = time.monotonic()
    feed.start()
    query.start()
    try:
        for number in range(1, rounds + 1):
            query.wait_for_batches(choose.randrange(1, 4))
            time.sleep(choose.uniform(0, RUN_SECONDS_MAX))  # the random moment: nothing is waited for
            victim = choose.choice(VICTIMS)
            workers = query.workers()
            if victim == "worker" and not workers:
                victim = "server"
            killed[victim] += 1
            if "driver" in victim:
                query.kill()
            if "server" in victim:
                server.kill()
            if victim == "worker":
                _kill(choose.choice(workers))
            if "server" in victim:
                time.sleep(choose.uniform(0, 0.5))
                server.restart()
            if "driver" in victim:
                query.start()
            say(f"round {number}: {victim}, {sum(feed.counts)} records, {time.monotonic() - began:.0f} s")
        feed.stop()
        Reader(server.bootstrap).read_up_to(feed.counts, query)
    finally:
        query.kill()
    kills = ", ".join(f"{name} {count}" for name, count in killed.items() if count)
    return (
        f"{rounds} rounds ({kills}), {query.starts} starts, {sum(feed.counts)} records,"
        f" {time.monotonic() - began:.0f} s: each once and in order"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--plain", action="store_true", help="without Spark")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="magnetar-kills-"))
    command = f"python -m tests.crash.spark.sink_rounds --rounds {options.rounds} --seed {seed}"
    command += " --plain" if options.plain else ""
    print(command, flush=True)
    module = "plain_query" if options.plain else "spark_query"
    try:
        with MagnetarProcess(settings=SETTINGS, data_dir=folder / "data") as server:
            line = run_rounds(
                server, options.rounds, seed, folder, module, lambda text: print(f"  {text}", flush=True)
            )
    except Exception as failure:  # noqa: BLE001 - whatever it was, the line with the seed must come out
        print(f"FAILED {command}: {failure} (everything kept in {folder})", flush=True)
        return 1
    shutil.rmtree(folder)
    print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
