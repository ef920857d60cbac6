"""One queue that Kafka's share consumers and Pulsar's Shared consumers drain together, all killed at random.

    python -m tests.soak.mixed_queue --messages 1000000 --kills 50 [--seed 1] [--planted NAME]

Three share consumers (two of librdkafka, one in Java) and three Shared consumers (two in C++, by Python, and one in
Java), each a process of its own, have one cursor: the share group and the subscription have one name.  They accept,
release and reject at random (`queue_consumers.py`).  Half of the messages are there when they begin; a part of the rest
is written with each kill, of one of them or of the server.  A fifth of the messages are entries of their own, the
others are in batches.

When nothing is left, what they have said is compared with what is promised (`queue_history.py`).

`--planted`: the server has a bug (`planted.py`), which has to be found.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_programs import OPTIONS
from tests.integration.partition_reader import read_partition
from tests.java_classes import with_kafka, with_pulsar
from tests.soak import part, planted
from tests.soak.mixed_history import Broken
from tests.soak.processes import READY_S, Process
from tests.soak.queue_consumers import BATCH, GROUP, LIMIT, PARTITIONS, POISON, SINGLE, TOPIC, is_single
from tests.soak.queue_history import Checked, History, Life, check

LETTERS = "dlq.queue"
PAUSE_S_MAX = 4.0
SERVER_SHARE = 0.4  # of the kills
TIMEOUT_S = 120.0  # without any progress
ADMIN_S = 60.0
LOCK_MS = 60_000
LOCK_LEFT_NS = 20 * 1_000_000_000  # a client may show late what it was given
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "100",  # a new group waits so long, and Pulsar's consumers take meanwhile
}
SHARER = Path(__file__).with_name("QueueSharer.java")
TAKER = Path(__file__).with_name("QueueTaker.java")
CONSUMERS = ("sharer-1", "sharer-2", "java-sharer", "taker-1", "taker-2", "java-taker")


class Writer:
    """Sends messages, each with its number as its value."""

    def __init__(self, server: MagnetarProcess) -> None:
        self.count = 0
        self._failures: list[str] = []
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": server.bootstrap,
            "log_level": 0,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": 200_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        self._single = confluent_kafka.Producer({**settings, "batch.num.messages": 1, "linger.ms": 0})
        self._many = confluent_kafka.Producer({**settings, "batch.num.messages": BATCH, "linger.ms": 5})

    def write(self, count: int) -> None:
        """Send so many messages more, and wait until they are acknowledged."""
        for number in range(self.count, self.count + count):
            alone = is_single(number)
            producer = self._single if alone else self._many
            while True:
                try:
                    producer.produce(TOPIC, b"%d" % number, None, int(not alone), self._delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        for producer in (self._single, self._many):
            while producer.flush(1.0):
                pass
        if self._failures:
            raise Broken(self._failures[0])
        self.count += count

    def _delivered(self, error: confluent_kafka.KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(f"a message was given up: {error}")


class Queue:
    """The server, the queue in it and its consumers."""

    def __init__(self, server: MagnetarProcess, choose: random.Random, folder: Path) -> None:
        self.server = server
        self.choose = choose
        self.history = History(limit=LIMIT, lock_ns=LOCK_LEFT_NS)
        self._folder = folder
        self._writer = Writer(server)
        self._clients: dict[str, tuple[Process, Life]] = {}

    def run(self, messages: int, kills: int, pause_s: float, say: Callable[[str], None]) -> Checked:
        """Raises Broken."""
        began = time.monotonic()
        self._set_up()
        first = messages - messages // 2
        self._writer.write(first)
        try:
            for name in CONSUMERS:
                self._begin(name)
            self._wait_for(1)
            for kill in range(1, kills + 1):
                self._disturb(messages // 2 * kill // kills - (self._writer.count - first), pause_s)
                if kill % 10 == 0:
                    self._say(say, f"{kill} kills", began)
            self._settle(messages)
            self._say(say, "nothing is left", began)
            for process, _ in self._clients.values():
                process.stop()
            self._clients.clear()
        finally:
            for process, _ in self._clients.values():
                process.kill()
        for partition in range(PARTITIONS):
            for letter in read_partition(self.server, LETTERS, partition, no_end=Broken):
                self.history.letters[int(letter.value() or b"-1")] += 1
        return check(self.history, messages)

    def _say(self, say: Callable[[str], None], what: str, began: float) -> None:
        say(
            f"  {what}: {self._writer.count} messages, {self.history.accepted} times accepted,"
            f" {time.monotonic() - began:.0f} s"
        )

    def _set_up(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        letters = NewTopic(LETTERS, PARTITIONS, 1, config={"errors.deadletterqueue.group.enable": "true"})
        for made in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1), letters]).values():
            made.result(ADMIN_S)
        wanted = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": str(LIMIT),
            "share.record.lock.duration.ms": str(LOCK_MS),
            "errors.deadletterqueue.topic.name": LETTERS,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        entries = [ConfigEntry(*one, incremental_operation=AlterConfigOpType.SET) for one in wanted.items()]
        group = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=entries)
        for change in admin.incremental_alter_configs([group]).values():
            change.result(ADMIN_S)

    # --- consumers ---------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        is_pulsar, is_java = "taker" in name, name.startswith("java")
        life = Life(
            self.history,
            name,
            time.monotonic_ns(),
            is_pulsar=is_pulsar,
            has_answers=is_java or not is_pulsar,
        )
        process = Process(name, self._command(name), life.heard, self._folder / f"{name}.log")
        self._clients[name] = process, life

    def _command(self, name: str) -> list[str]:
        seed = str(self.choose.randrange(1 << 31))
        address = self.server.pulsar_url if "taker" in name else self.server.bootstrap
        if not name.startswith("java"):
            return [sys.executable, "-m", "tests.soak.queue_consumers", name.partition("-")[0], seed, address]
        source, class_path = (TAKER, with_pulsar) if name == "java-taker" else (SHARER, with_kafka)
        java = ["java", *OPTIONS, "-Dlog4j2.level=off", "-cp", class_path(source), source.stem]
        told = [seed, address, TOPIC, GROUP, str(POISON)]
        return [*java, *told, str(SINGLE), str(LIMIT)] if source is TAKER else [*java, *told]

    def _disturb(self, count: int, pause_s: float) -> None:
        """Kill somebody at a random moment, while so many messages are written."""
        with ThreadPoolExecutor(1) as writer:
            written = writer.submit(self._writer.write, count)
            time.sleep(self.choose.uniform(0, pause_s))  # the random moment: nothing is waited for
            for process, _ in self._clients.values():
                process.check()
            if self.choose.random() < SERVER_SHARE:
                before = time.monotonic_ns()
                self.server.kill()
                self.history.killed(before, time.monotonic_ns())
                self.server.restart()
            else:
                name = self.choose.choice(CONSUMERS)
                process, life = self._clients.pop(name)
                life.died = time.monotonic_ns()
                process.kill()
                self._begin(name)
            written.result()

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _wait_for(self, count: int) -> None:
        """Until so many have been accepted, by what was said."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.history.accepted < count:
            if time.monotonic() > deadline:
                raise Broken(f"nothing was accepted within {TIMEOUT_S:g} s")
            time.sleep(0.1)

    def _settle(self, messages: int) -> None:
        """Until nothing is left."""
        deadline, before = time.monotonic() + TIMEOUT_S, messages
        while left := self._backlog():
            if left < before:
                deadline, before = time.monotonic() + TIMEOUT_S, left
            if time.monotonic() > deadline:
                raise Broken(f"{left} messages are left, and nobody takes them")
            for process, _ in self._clients.values():
                process.check()
            time.sleep(0.5)

    def _backlog(self) -> int:
        """Messages that are not acknowledged."""
        found = 0
        for partition in range(PARTITIONS):
            place = f"admin/v2/persistent/public/default/{TOPIC}-partition-{partition}/stats"
            with urllib.request.urlopen(f"{self.server.http_url}/{place}", timeout=TIMEOUT_S) as page:
                found += json.load(page)["subscriptions"][GROUP]["msgBacklog"]
        return found


def run(
    messages: int,
    kills: int,
    seed: int,
    bug: str = "",
    say: Callable[[str], None] = print,
    pause_s: float = PAUSE_S_MAX,
) -> str:
    """The closing line.  Raises Broken."""
    began = time.monotonic()
    for class_path, source in ((with_kafka, SHARER), (with_pulsar, TAKER)):
        class_path(source)  # what is missing for it fails now, not when the queue has been filled
    command = planted.command(bug) if bug else None
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-queue-") as folder,
        MagnetarProcess(settings=SETTINGS, command=command, ready_timeout_s=READY_S) as server,
    ):
        queue = Queue(server, random.Random(seed), Path(folder))
        checked = queue.run(messages, kills, pause_s, say)
        if "Traceback" in server.log:
            raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:2000])
        killed = len(queue.history.kills)
    return (
        f"{messages} messages, {kills} kills ({killed} of the server), {checked},"
        f" {time.monotonic() - began:.0f} s: all kept"
    )


def main() -> int:
    def whole(options: argparse.Namespace, seed: int) -> str:
        return run(options.messages, options.kills, seed, options.planted, part.say)

    numbers = {"messages": 1_000_000, "kills": 50}
    return part.main("tests.soak.mixed_queue", __doc__, numbers, whole, has_bugs=True)


if __name__ == "__main__":
    raise SystemExit(main())
