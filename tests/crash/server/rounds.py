"""Kill the server again and again under load, and hold it to what it has acknowledged.

    python -m tests.crash.server.rounds --rounds 200 --seed 1

One round: the server runs under the load of `load.py` until a random moment, gets SIGKILL and is started
again on the same data (in some rounds it is killed once more while it recovers).  Checked after each round,
from the broker:

* no partition ends before the last acknowledged record;
* no group offset is behind an acknowledged commit, nor ahead of anything that was ever sent.

Checked every `CHECK_EVERY` rounds and at the end, by reading the log back with the load paused: the record at
offset n of a partition is the n-th that was written to it, whole.  The producer never gives up, so this one
equation says that nothing acknowledged is lost, nothing is there twice, offsets are dense, order holds, and
each acknowledgement named the right offset.

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
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from magnetar.testing.server import MagnetarProcess

Answer = TypeVar("Answer")

PARTITIONS = 4
TOPIC = "crash-load"
GROUP = "crash-group"
CHECK_EVERY = 20
RUN_SECONDS_MAX = 1.2  # the server lives this long, at most, after the load is under way again
RECOVERY_KILL_SHARE = 0.15
RECOVERY_SECONDS_MAX = 0.6
TIMEOUT_S = 60.0
TOPIC_CONFIG = {"segment.bytes": str(2 << 20)}  # so that rounds also cross the roll-over of a ledger
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "journal.bytes": str(64 << 20),  # so that rounds also meet the journal going around
}
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
    def spawn(self) -> None: ...
    def wait_ready(self) -> None: ...
    def kill(self) -> None: ...


class Load:
    """`load.py` as a child process, and everything it has said."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._changed = threading.Condition()
        self._answers: list[str] = []
        self.acked: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]  # number -> offset
        self.ack_count = 0
        self.committed = [0] * PARTITIONS
        self.wanted = [0] * PARTITIONS
        self.commit_count = 0
        self.broken: list[str] = []
        script = Path(__file__).with_name("load.py")
        arguments = [bootstrap, TOPIC, GROUP, str(PARTITIONS), str(seed)]
        self._process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

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
                    self._note(json.loads(line))
                    self._changed.notify_all()

    def _note(self, event: dict[str, Any]) -> None:
        for partition, number, offset in event.get("acks", ()):
            self.acked[partition][number] = offset
            self.ack_count += 1
        for partition, offset in event.get("wanted", ()):
            self.wanted[partition] = max(self.wanted[partition], offset)
        for partition, offset in event.get("committed", ()):
            self.committed[partition] = max(self.committed[partition], offset)
            self.commit_count += 1
        if "done" in event:
            self._answers.append(event["done"])
        if "broken" in event:
            self.broken.append(event["broken"])


class Witness:
    """Asks the broker what it has, with a client of its own that joins no group."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,
                "group.id": GROUP,
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
        asked = [confluent_kafka.TopicPartition(TOPIC, n) for n in range(PARTITIONS)]

        def ask() -> list[int]:
            answer = self._consumer.committed(asked, timeout=TIMEOUT_S)
            for each in answer:
                if each.error is not None:
                    raise confluent_kafka.KafkaException(each.error)
            return [max(each.offset, 0) for each in answer]

        return patiently(ask, "the group's offsets")

    def end(self, partition: int) -> int:
        where = confluent_kafka.TopicPartition(TOPIC, partition)

        def ask() -> int:
            return self._consumer.get_watermark_offsets(where, timeout=TIMEOUT_S)[1]

        return patiently(ask, f"the end of partition {partition}")

    def check_log(self, acked: list[dict[int, int]], *, from_start: bool) -> None:
        """Read every partition to its end and compare it with what was written; the load must be paused."""
        for partition in range(PARTITIONS):
            start = 0 if from_start else self._read_up_to[partition]
            end = self.end(partition)
            if end != len(acked[partition]):
                raise Broken(
                    f"partition {partition} ends at {end}, {len(acked[partition])} records were acknowledged"
                )
            for number, offset in acked[partition].items():
                if offset != number:
                    raise Broken(
                        f"record {number} of partition {partition} was acknowledged at offset {offset}"
                    )
            self._check_records(partition, start, end)
            self._read_up_to[partition] = end

    def _check_records(self, partition: int, start: int, end: int) -> None:
        if start == end:
            return
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, start)])
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
    crc, _, body = value.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise Broken(f"the record at offset {number} of partition {partition} is damaged")
    found = body.split(b" ", 2)[:2]
    if found != [b"%d" % partition, b"%d" % number]:
        raise Broken(
            f"offset {number} of partition {partition} holds record {b' of '.join(found[::-1]).decode()}"
        )


def run_rounds(server: Server, rounds: int, seed: int, say: Callable[[str], None]) -> str:
    """Run them on a server that is up and has no data; returns the closing line, raises `Broken`."""
    choose = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=TOPIC_CONFIG)])[TOPIC].result(TIMEOUT_S)
    load, witness = Load(server.bootstrap, seed), Witness(server.bootstrap)
    began = time.monotonic()
    try:
        for number in range(1, rounds + 1):
            try:
                _one_round(server, load, witness, choose)
                if number % CHECK_EVERY == 0 or number == rounds:
                    load.ask("pause")
                    witness.check_log(load.acked, from_start=number == rounds)
                    load.ask("resume")
                    say(f"round {number}: {load.ack_count} records, {time.monotonic() - began:.0f} s")
            except Broken as broken:
                raise Broken(f"round {number}: {broken}") from None
    finally:
        load.close()
        witness.close()
    return (
        f"{rounds} rounds, {load.ack_count} records and {load.commit_count} commits acknowledged, "
        f"{time.monotonic() - began:.0f} s: all kept"
    )


def _one_round(server: Server, load: Load, witness: Witness, choose: random.Random) -> None:
    acks, commits = load.ack_count, load.commit_count
    load.wait_until(lambda: load.ack_count > acks, "a record is acknowledged after the restart")
    if choose.random() < 0.5:
        load.wait_until(lambda: load.commit_count > commits, "a commit is acknowledged after the restart")
    time.sleep(choose.uniform(0, RUN_SECONDS_MAX))  # the random moment: nothing is waited for
    server.kill()
    load.ask("mark")
    committed = list(load.committed)
    ends = [max(numbers, default=-1) + 1 for numbers in load.acked]
    while choose.random() < RECOVERY_KILL_SHARE:
        server.spawn()
        time.sleep(choose.uniform(0, RECOVERY_SECONDS_MAX))
        server.kill()
    server.spawn()
    server.wait_ready()
    for partition, end in enumerate(ends):
        if (found := witness.end(partition)) < end:
            raise Broken(f"partition {partition} ends at {found}, record {end - 1} was acknowledged")
    found_commits = witness.committed()
    load.ask("mark")
    for partition, offset in enumerate(committed):
        if found_commits[partition] < offset:
            raise Broken(
                f"the group is at {found_commits[partition]} of partition {partition}, {offset} was acknowledged"
            )
        if found_commits[partition] > load.wanted[partition]:
            raise Broken(
                f"the group is at {found_commits[partition]} of partition {partition}, beyond any commit"
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    data_dir = tempfile.mkdtemp(prefix="magnetar-crash-")
    command = f"python -m tests.crash.server.rounds --rounds {options.rounds} --seed {seed}"
    print(command, flush=True)
    try:
        with MagnetarProcess(settings=SETTINGS, data_dir=data_dir) as server:
            line = run_rounds(server, options.rounds, seed, lambda text: print(f"  {text}", flush=True))
    except Exception as failure:  # noqa: BLE001 - whatever it was, the line with the seed must come out
        print(f"FAILED {command}: {failure} (data kept in {data_dir})", flush=True)
        return 1

    shutil.rmtree(data_dir)
    print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
