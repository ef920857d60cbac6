"""Transactions of both protocols on the same topics, with clients and the server killed at random.

    python -m tests.soak.mixed --minutes 60 [--seed 1] [--planted NAME]

Clients (`mixed_clients.py`, `MixedWriter.java`), each a process of its own: librdkafka and Kafka's Java producer write
in transactions of versions 1 and 2, Pulsar's Java client in Pulsar's; and two copy one of the topics, exactly once,
librdkafka with its group's offsets and Pulsar's client with acknowledgements.  A third of the transactions is aborted,
some are left open.

In each round of half a minute, on a server without data, someone is killed every few seconds.  Then the writers stop,
the copiers go on until they have everything, and what Kafka's and Pulsar's readers see is compared with what the
clients have said (`mixed_history.py`).

`--planted`: the server has a bug (`planted.py`), which has to be found.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import confluent_kafka
import pulsar
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.class_archives import kafka_tool
from tests.java_classes import with_kafka
from tests.soak import part, planted
from tests.soak.mixed_clients import COPIES, PARTITIONS, SOURCE, TARGETS, TOPICS
from tests.soak.mixed_history import Broken, History, Place, Seen, State, check, check_copies
from tests.soak.processes import READY_S, Process

ROUND_S = 30.0
PAUSE_S_MAX = 4.0
SERVER_SHARE = 0.5  # of the kills
TIMEOUT_S = 120.0  # without any progress
READ_S = 60.0  # for one answer: the machine may be busy
# Pulsar's client sends again what was not answered when the server was killed, also within a transaction.
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "brokerDeduplicationEnabled": "true"}
WRITERS = ("kafka", "java", "pulsar")
WRITER = Path(__file__).with_name("MixedWriter.java")


class Round:
    """One server from its first start on, and its clients."""

    def __init__(self, server: MagnetarProcess, choose: random.Random, folder: Path) -> None:
        self.server = server
        self.choose = choose
        self.history = History()
        self.kills = 0
        self._folder = folder
        self._clients: dict[str, Process] = {}

    def run(self, seconds: float) -> int:
        """How many records are visible in the end.  Raises Broken."""
        self._make_topics()
        for kind in (*WRITERS, *COPIES):
            log = self._folder / f"{kind}.log"
            self._clients[kind] = Process(kind, self._command(kind), self.history.heard, log)
        try:
            self._disturb(seconds)
            for kind in WRITERS:
                self._clients.pop(kind).stop()
            self._settle()
            for client in self._clients.values():
                client.stop()
            self._clients.clear()
            return self._check()
        finally:
            for client in self._clients.values():
                client.kill()

    def _make_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic(one, PARTITIONS, 1) for one in TOPICS]).values():
            made.result(TIMEOUT_S)

    def _command(self, kind: str) -> list[str]:
        seed = str(self.choose.randrange(1 << 31))
        if kind == "java":
            program = [*kafka_tool(), "-cp", with_kafka(WRITER), WRITER.stem]
            return [*program, kind, seed, self.server.bootstrap, str(PARTITIONS), SOURCE, *TARGETS]
        module = [sys.executable, "-m", "tests.soak.mixed_clients", kind, kind, seed]
        return [*module, self.server.bootstrap, self.server.pulsar_url, str(self._folder)]

    def _disturb(self, seconds: float) -> None:
        # All are under way before the first kill: a JVM takes its time, and each has to have done something.
        self._wait(lambda: self._have_begun() == len(WRITERS), self._have_begun, "every writer has committed")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.choose.uniform(0, PAUSE_S_MAX))  # the random moment: nothing is waited for
            for client in self._clients.values():
                client.check()
            self.kills += 1
            if self.choose.random() < SERVER_SHARE:
                self.server.kill()
                self.server.restart()
            else:
                self._clients[self.choose.choice(list(self._clients))].again()

    def _have_begun(self) -> int:
        states = list(self.history.states.items())
        done = {name.partition(".")[0] for name, state in states if state is State.COMMITTED}
        return len(done & {*WRITERS})

    def _settle(self) -> None:
        """Until nothing is open any more, and the copiers have everything."""
        self._wait(lambda: not any(self._lag().values()), self._lag, "all is copied")

    def _lag(self) -> dict[str, int]:
        """What is not decided, and what is not copied, by who does that."""
        undecided = self._undecided()
        source = self._visible(SOURCE)
        return {"": undecided, **{who: max(source - self._visible(COPIES[who]), 0) for who in COPIES}}

    def _visible(self, topic: str) -> int:
        return sum(len(values) for values in self._read([topic], "read_committed").values())

    def _undecided(self) -> int:
        """Records behind the last stable offsets."""
        found = 0
        for isolation, sign in (("read_uncommitted", 1), ("read_committed", -1)):
            reader = self._reader(isolation)
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    where = confluent_kafka.TopicPartition(topic, partition)
                    found += sign * reader.get_watermark_offsets(where, timeout=READ_S)[1]
            reader.close()
        return found

    def _wait(self, holds: Callable[[], bool], progress: Callable[[], object], what: str) -> None:
        deadline, before = time.monotonic() + TIMEOUT_S, progress()
        while not holds():
            if (now := progress()) != before:
                deadline, before = time.monotonic() + TIMEOUT_S, now
            if time.monotonic() > deadline:
                raise Broken(f"not within {TIMEOUT_S:g} s: {what} ({before})")
            for client in self._clients.values():
                client.check()
            time.sleep(0.5)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _check(self) -> int:
        committed = self._read(TOPICS, "read_committed")
        everything = self._read(TOPICS, "read_uncommitted")
        count = check(self.history, committed, everything, self._read_by_pulsar())
        for who, topic in COPIES.items():
            check_copies(_values(committed, SOURCE), _values(committed, topic), who)
        return count

    def _reader(self, isolation: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "log_level": 0,
                "group.id": "mixed-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "auto.offset.reset": "earliest",
            }
        )

    def _read(self, topics: Iterable[str], isolation: str) -> dict[Place, list[str]]:
        found: dict[Place, list[str]] = {(topic, one): [] for topic in topics for one in range(PARTITIONS)}
        waiting = set(found)
        reader = self._reader(isolation)
        reader.assign([confluent_kafka.TopicPartition(*place, 0) for place in found])
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while waiting:
                if time.monotonic() > deadline:
                    raise Broken(f"{sorted(waiting)} cannot be read to their ends")
                for message in reader.consume(1000, 0.1):
                    topic, partition, error = message.topic(), message.partition(), message.error()
                    assert topic is not None
                    assert partition is not None
                    if error is None:
                        found[topic, partition].append((message.value() or b"").decode())
                    elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                        waiting.discard((topic, partition))
        finally:
            reader.close()
        return found

    def _read_by_pulsar(self) -> Seen:
        client = pulsar.Client(self.server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        found: dict[Place, list[str]] = {}
        try:
            for topic in TOPICS:
                for partition in range(PARTITIONS):
                    name = f"persistent://public/default/{topic}-partition-{partition}"
                    reader = client.create_reader(name, pulsar.MessageId.earliest)
                    values = found[topic, partition] = []
                    while reader.has_message_available():
                        values.append(reader.read_next(int(READ_S * 1000)).data().decode())
                    reader.close()
        finally:
            client.close()
        return found


def _values(seen: Seen, topic: str) -> list[str]:
    return [value for place, values in seen.items() if place[0] == topic for value in values]


def run(minutes: float, seed: int, bug: str = "", say: Callable[[str], None] = print) -> str:
    """Rounds until the time is over, one at least; the closing line.  Raises Broken."""
    began, rounds, records, kills, transactions = time.monotonic(), 0, 0, 0, 0
    choose = random.Random(seed)
    while not rounds or time.monotonic() - began < minutes * 60:
        with tempfile.TemporaryDirectory(prefix="magnetar-mixed-") as folder:
            command = planted.command(bug) if bug else None
            with MagnetarProcess(settings=SETTINGS, command=command, ready_timeout_s=READY_S) as server:
                one = Round(server, choose, Path(folder))
                records += one.run(min(ROUND_S, minutes * 60))
                if "Traceback" in server.log:
                    raise Broken(f"the server has had an error: {server.log[-2000:]}")
        rounds, kills = rounds + 1, kills + one.kills
        transactions += one.history.count(State.COMMITTED)
        say(f"  round {rounds}: {kills} kills, {transactions} transactions, {records} records")
    return (
        f"{rounds} rounds, {kills} kills, {transactions} transactions committed, {records} records: all kept"
    )


def main() -> int:
    def whole(options: argparse.Namespace, seed: int) -> str:
        return run(options.minutes, seed, options.planted, part.say)

    return part.main("tests.soak.mixed", __doc__, {"minutes": 0.5}, whole, has_bugs=True)


if __name__ == "__main__":
    raise SystemExit(main())
