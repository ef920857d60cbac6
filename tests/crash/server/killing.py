"""Killing a server under a load again and again: what the rounds of both protocols have in common.

One round: the server runs under its load until a random moment, gets SIGKILL and is started again on the same data
(in some rounds it is killed once more while it recovers).  After each, no partition may end before the last
acknowledged record.  Every `CHECK_EVERY` rounds and at the end, with the load paused, the log is read back: the
record at offset n of a partition is the n-th that was written to it, whole.

A failure is one line with the seed; the data directory is kept for it.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import confluent_kafka

from magnetar.testing.server import MagnetarProcess
from tests.crash.server.child import numbers_of

Answer = TypeVar("Answer")

REPOSITORY = Path(__file__).resolve().parents[3]
PARTITIONS = 4
CHECK_EVERY = 20
RUN_SECONDS_MAX = 1.2  # the server lives this long, at most, after the load is under way again
RECOVERY_KILL_SHARE = 0.15
RECOVERY_SECONDS_MAX = 0.6
TIMEOUT_S = 90.0
NOT_YET = frozenset(
    {
        confluent_kafka.KafkaError._TRANSPORT,
        confluent_kafka.KafkaError._UNKNOWN_PARTITION,
        confluent_kafka.KafkaError._UNKNOWN_TOPIC,
        confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
        confluent_kafka.KafkaError._ALL_BROKERS_DOWN,
        confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
        confluent_kafka.KafkaError.NOT_COORDINATOR,
        confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    }
)


class Broken(Exception):
    """A promise was broken; one line."""


class Server(Protocol):
    """What a round needs of a server; `MagnetarProcess` is one."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pulsar_url(self) -> str: ...
    @property
    def http_url(self) -> str: ...
    def spawn(self) -> None: ...
    def wait_ready(self) -> None: ...
    def kill(self) -> None: ...


class Runnable(Protocol):
    """The rounds of one load, which `main` runs."""

    def run(self, count: int, say: Callable[[str], None]) -> str: ...


class Load(ABC):
    """A load (child.py) as a child process, and everything it has said."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._changed = threading.Condition()
        self._answers: list[str] = []
        self.ack_count = 0
        self.broken: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.crash.server.{module}", *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    @abstractmethod
    def acknowledged(self) -> Sequence[Collection[int]]:
        """For each partition, the numbers of its acknowledged records."""

    @abstractmethod
    def note(self, event: dict[str, Any]) -> None:
        """Keep what one event says; called before a waiting task goes on."""

    def ask(self, word: str) -> None:
        """Send a command and wait for its answer: events said before it have arrived then."""
        assert self._process.stdin is not None
        self._answers.clear()
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        self.wait_until(lambda: word in self._answers, f"the load answers {word}")

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: holds() or bool(self.broken), TIMEOUT_S):
                raise Broken(f"not within {TIMEOUT_S:g} s: {what}")
        if self.broken:
            raise Broken(self.broken[0])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                with self._changed:
                    self._hear(json.loads(line))
                    self._changed.notify_all()

    def _hear(self, event: dict[str, Any]) -> None:
        self.note(event)
        if "done" in event:
            self._answers.append(event["done"])
        if "broken" in event:
            self.broken.append(event["broken"])


class Witness:
    """Asks the broker what it has, with a Kafka client of its own that joins no group."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._topic = topic
        self._group = group
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,
                "group.id": group,
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 8 << 20,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._read_up_to = [0] * PARTITIONS

    def close(self) -> None:
        self._consumer.close()

    def committed(self) -> list[int]:
        """The group's offset for each partition; 0 where it has none."""
        asked = [confluent_kafka.TopicPartition(self._topic, n) for n in range(PARTITIONS)]

        def ask() -> list[int]:
            answer = self._consumer.committed(asked, timeout=TIMEOUT_S)
            for each in answer:
                if each.error is not None:
                    raise confluent_kafka.KafkaException(each.error)
            return [max(each.offset, 0) for each in answer]

        return patiently(ask, f"the offsets of {self._group}")

    def end(self, partition: int) -> int:
        where = confluent_kafka.TopicPartition(self._topic, partition)

        def ask() -> int:
            return self._consumer.get_watermark_offsets(where, timeout=TIMEOUT_S)[1]

        return patiently(ask, f"the end of partition {partition}")

    def check_log(self, acknowledged: Sequence[Collection[int]], *, from_start: bool) -> None:
        """Read every partition to its end and compare it with what was written; the load must be paused."""
        for partition, numbers in enumerate(acknowledged):
            start = 0 if from_start else self._read_up_to[partition]
            end = self.end(partition)
            if end != len(numbers):
                raise Broken(f"partition {partition} ends at {end}, {len(numbers)} records were acknowledged")
            self._check_records(partition, start, end)
            self._read_up_to[partition] = end

    def _check_records(self, partition: int, start: int, end: int) -> None:
        if start == end:
            return
        self._consumer.assign([confluent_kafka.TopicPartition(self._topic, partition, start)])
        deadline = time.monotonic() + TIMEOUT_S
        expected = start
        while expected < end:
            if time.monotonic() > deadline:
                raise Broken(f"partition {partition} cannot be read beyond offset {expected} of {end}")
            for message in self._consumer.consume(1000, 0.2):
                if message.error():
                    raise Broken(f"reading partition {partition} at {expected}: {message.error()}")
                if message.offset() != expected:
                    raise Broken(f"partition {partition} has offset {message.offset()} after {expected - 1}")
                check_payload(message.value() or b"", partition, expected)
                expected += 1
        self._consumer.unassign()


class Rounds(ABC):
    """The rounds of one load on a server that is up and has no data."""

    load: Load
    witness: Witness

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.choose = random.Random(seed)

    @abstractmethod
    def wait_for_progress(self) -> None:
        """Until the load is under way again after the last restart."""

    @abstractmethod
    def note_promises(self) -> None:
        """The server is dead and the load has said all it knows: keep what must hold when it is back."""

    @abstractmethod
    def check_promises(self) -> None:
        """The server is back; `Broken` if it does not keep what was noted."""

    @abstractmethod
    def check_quiet(self) -> None:
        """What must hold besides the log once everything written is acknowledged; the load is paused."""

    @abstractmethod
    def summary(self) -> str:
        """What was acknowledged over all rounds."""

    @abstractmethod
    def close(self) -> None: ...

    def run(self, count: int, say: Callable[[str], None]) -> str:
        """Returns the closing line, raises `Broken`."""
        began = time.monotonic()
        try:
            for number in range(1, count + 1):
                try:
                    self._one()
                    if number % CHECK_EVERY == 0 or number == count:
                        self.load.ask("pause")
                        self.check_quiet()
                        self.witness.check_log(self.load.acknowledged, from_start=number == count)
                        self.load.ask("resume")
                        say(
                            f"round {number}: {self.load.ack_count} records, {time.monotonic() - began:.0f} s"
                        )
                except Broken as broken:
                    raise Broken(f"round {number}: {broken}") from None
        finally:
            self.close()
        return f"{count} rounds, {self.summary()}, {time.monotonic() - began:.0f} s: all kept"

    def _one(self) -> None:
        server, choose = self.server, self.choose
        self.wait_for_progress()
        time.sleep(choose.uniform(0, RUN_SECONDS_MAX))  # the random moment: nothing is waited for
        server.kill()
        self.load.ask("mark")
        self.note_promises()
        ends = [max(numbers, default=-1) + 1 for numbers in self.load.acknowledged]
        while choose.random() < RECOVERY_KILL_SHARE:
            server.spawn()
            time.sleep(choose.uniform(0, RECOVERY_SECONDS_MAX))
            server.kill()
        server.spawn()
        server.wait_ready()
        for partition, end in enumerate(ends):
            if (found := self.witness.end(partition)) < end:
                raise Broken(f"partition {partition} ends at {found}, record {end - 1} was acknowledged")
        self.check_promises()


def patiently(ask: Callable[[], Answer], what: str) -> Answer:
    """Ask again while the broker says that it is not ready for this yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise Broken(f"{what} cannot be had: {error.args[0].str()}") from None
        time.sleep(0.02)


def check_payload(value: bytes, partition: int, number: int) -> None:
    try:
        found = numbers_of(value)
    except ValueError:
        raise Broken(f"the record at offset {number} of partition {partition} is damaged") from None
    if found != (partition, number):
        raise Broken(f"offset {number} of partition {partition} holds record {found[1]} of {found[0]}")


def main(
    module: str, text: str | None, rounds: Callable[[Server, int], Runnable], settings: dict[str, str]
) -> int:
    """The command `python -m tests.crash.server.MODULE`."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    data_dir = tempfile.mkdtemp(prefix="magnetar-crash-")
    command = f"python -m tests.crash.server.{module} --rounds {options.rounds} --seed {seed}"
    print(command, flush=True)
    try:
        with MagnetarProcess(settings=settings, data_dir=data_dir) as server:
            line = rounds(server, seed).run(options.rounds, lambda each: print(f"  {each}", flush=True))
    except Exception as failure:  # noqa: BLE001 - whatever it was, the line with the seed must come out
        print(f"FAILED {command}: {failure} (data kept in {data_dir})", flush=True)
        return 1

    shutil.rmtree(data_dir)
    print(line, flush=True)
    return 0
