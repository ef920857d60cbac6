"""Kill the server again and again under Pulsar clients, and hold it to what it has acknowledged.

    python -m tests.crash.server.pulsar_rounds --rounds 200 --seed 1

One round: the server runs under the load of `pulsar_load.py` until a random moment, gets SIGKILL and is started
again on the same data (in some rounds it is killed once more while it recovers).  Checked after each round:

* no partition ends before the last acknowledged message;
* no subscription's position is beyond a message that nobody has acknowledged.

Checked every `CHECK_EVERY` rounds and at the end, with the producers paused:

* every acknowledged message was processed on every subscription, and on Failover in order: none came before the one
  ahead of it;
* the backlog is empty, as the admin API and a Kafka client see it;
* the record at offset n of a partition is the n-th that was written to it, whole: the namespace deduplicates, so what
  the producers send again after each restart is there once.

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
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka

from magnetar.testing.server import MagnetarProcess
from tests.crash.server.rounds import Broken, check_payload, patiently

PARTITIONS = 4
NAMESPACE = "public/crash"
TOPIC = f"persistent://{NAMESPACE}/load"
SUBSCRIPTIONS = ("shared", "failover")
CHECK_EVERY = 20
RUN_SECONDS_MAX = 1.2  # the server lives this long, at most, after the load is under way again
RECOVERY_KILL_SHARE = 0.15
RECOVERY_SECONDS_MAX = 0.6
TIMEOUT_S = 90.0
REQUEST_TIMEOUT_S = 10.0
SETTINGS = {
    "journal.bytes": str(64 << 20),  # so that rounds also meet the journal going around
    "log.segment.bytes": str(2 << 20),  # and ledgers rolling over
}


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


class Load:
    """`pulsar_load.py` as a child process, and everything it has said."""

    def __init__(self, url: str, seed: int) -> None:
        self._changed = threading.Condition()
        self._answers: list[str] = []
        self.acked: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.seen: dict[str, list[set[int]]] = {
            name: [set() for _ in range(PARTITIONS)] for name in SUBSCRIPTIONS
        }
        self.seen_counts = dict.fromkeys(SUBSCRIPTIONS, 0)
        self.ack_count = 0
        self.broken: list[str] = []
        self._following = [0] * PARTITIONS  # of Failover: what may come at most
        script = Path(__file__).with_name("pulsar_load.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), url, TOPIC, str(PARTITIONS), str(seed)],
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

    def wait_for_progress(self) -> None:
        """Until something is acknowledged to a producer, and processed on each subscription."""
        acks, seen = self.ack_count, dict(self.seen_counts)
        self.wait_until(lambda: self.ack_count > acks, "a message is acknowledged after the restart")
        for name in SUBSCRIPTIONS:
            self.wait_until(
                lambda name=name: self.seen_counts[name] > seen[name],  # type: ignore[misc]
                f"a message is processed on {name} after the restart",
            )

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
        for partition, number in event.get("acks", ()):
            self.acked[partition].add(number)
            self.ack_count += 1
        if "seen" in event:
            name, partition, numbers = event["seen"]
            for number in numbers:
                if name == "failover":
                    self._check_order(partition, number)
                self.seen[name][partition].add(number)
                self.seen_counts[name] += 1
        if "done" in event:
            self._answers.append(event["done"])
        if "broken" in event:
            self.broken.append(event["broken"])

    def _check_order(self, partition: int, number: int) -> None:
        """What came may come again; what is ahead of it must have come first."""
        following = self._following[partition]
        if number > following:
            self.broken.append(f"failover got {number} of partition {partition} before {following}")
        self._following[partition] = max(following, number + 1)


class Witness:
    """Asks the broker what it has: a Kafka client that joins no group, and the admin API."""

    def __init__(self, server: Server) -> None:
        self._http = server.http_url
        self._consumers = {
            name: confluent_kafka.Consumer(
                {
                    "bootstrap.servers": server.bootstrap,
                    "log_level": 2,
                    "group.id": name,
                    "enable.auto.commit": False,
                    "fetch.message.max.bytes": 8 << 20,
                    "fetch.wait.max.ms": 100,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 100,
                }
            )
            for name in SUBSCRIPTIONS
        }
        self._read_up_to = [0] * PARTITIONS

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def positions(self, subscription: str) -> list[int]:
        """Where each partition's mark-delete stands, as the group's offset; 0 where there is none."""
        asked = [confluent_kafka.TopicPartition(TOPIC, n) for n in range(PARTITIONS)]

        def ask() -> list[int]:
            answer = self._consumers[subscription].committed(asked, timeout=TIMEOUT_S)
            for each in answer:
                if each.error is not None:
                    raise confluent_kafka.KafkaException(each.error)
            return [max(each.offset, 0) for each in answer]

        return patiently(ask, f"the positions of {subscription}")

    def end(self, partition: int) -> int:
        where = confluent_kafka.TopicPartition(TOPIC, partition)
        reader = self._consumers[SUBSCRIPTIONS[0]]
        return patiently(
            lambda: reader.get_watermark_offsets(where, timeout=TIMEOUT_S)[1],
            f"the end of partition {partition}",
        )

    def backlogs(self, partition: int) -> dict[str, int]:
        path = f"persistent/{NAMESPACE}/load-partition-{partition}/stats"
        stats = json.loads(request(self._http, "GET", path))
        return {name: stats["subscriptions"][name]["msgBacklog"] for name in SUBSCRIPTIONS}

    def check_quiet(self, load: Load) -> None:
        """Everything is processed on both subscriptions, and nobody says that something is left."""
        for name in SUBSCRIPTIONS:
            for partition, acked in enumerate(load.acked):
                load.wait_until(
                    lambda seen=load.seen[name][partition], acked=acked: acked <= seen,  # type: ignore[misc]
                    f"{name} processes all of partition {partition}",
                )
        deadline = time.monotonic() + TIMEOUT_S
        while left := self._what_is_left(load):
            if time.monotonic() > deadline:
                raise Broken(left)
            time.sleep(0.1)

    def _what_is_left(self, load: Load) -> str:
        for name in SUBSCRIPTIONS:
            for partition, position in enumerate(self.positions(name)):
                end = len(load.acked[partition])
                if position != end:
                    return f"{name} is at {position} of partition {partition}, all {end} are acknowledged"
                if backlog := self.backlogs(partition)[name]:
                    return f"{name} has a backlog of {backlog} in partition {partition}, and nothing to read"
        return ""

    def check_log(self, acked: list[set[int]], *, from_start: bool) -> None:
        """Read every partition to its end and compare it with what was written; the load must be paused."""
        for partition in range(PARTITIONS):
            start = 0 if from_start else self._read_up_to[partition]
            end = self.end(partition)
            if end != len(acked[partition]):
                raise Broken(
                    f"partition {partition} ends at {end}, {len(acked[partition])} messages were acknowledged"
                )
            self._check_records(partition, start, end)
            self._read_up_to[partition] = end

    def _check_records(self, partition: int, start: int, end: int) -> None:
        if start == end:
            return
        reader = self._consumers[SUBSCRIPTIONS[0]]
        reader.assign([confluent_kafka.TopicPartition(TOPIC, partition, start)])
        deadline = time.monotonic() + TIMEOUT_S
        expected = start
        while expected < end:
            if time.monotonic() > deadline:
                raise Broken(f"partition {partition} cannot be read beyond offset {expected} of {end}")
            for message in reader.consume(1000, 0.2):
                if message.error():
                    raise Broken(f"reading partition {partition} at {expected}: {message.error()}")
                if message.offset() != expected:
                    raise Broken(f"partition {partition} has offset {message.offset()} after {expected - 1}")
                check_payload(message.value() or b"", partition, expected)
                expected += 1
        reader.unassign()


def request(http: str, method: str, path: str, body: object = None) -> bytes:
    """The body of the admin API's answer; `Broken` if it refuses."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(f"{http}/admin/v2/{path}", data, method=method)
    call.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(call, timeout=REQUEST_TIMEOUT_S) as answer:
            found: bytes = answer.read()
            return found
    except urllib.error.HTTPError as error:
        raise Broken(f"{method} {path} was answered with {error.code}: {error.read()[:200]!r}") from None


def run_rounds(server: Server, rounds: int, seed: int, say: Callable[[str], None]) -> str:
    """Run them on a server that is up and has no data; returns the closing line, raises `Broken`."""
    choose = random.Random(seed)
    request(server.http_url, "PUT", f"namespaces/{NAMESPACE}", {"replication_clusters": ["standalone"]})
    request(server.http_url, "POST", f"namespaces/{NAMESPACE}/deduplication", True)
    request(server.http_url, "PUT", f"persistent/{NAMESPACE}/load/partitions", PARTITIONS)
    load, witness = Load(server.pulsar_url, seed), Witness(server)
    began = time.monotonic()
    try:
        for number in range(1, rounds + 1):
            try:
                _one_round(server, load, witness, choose)
                if number % CHECK_EVERY == 0 or number == rounds:
                    load.ask("pause")
                    witness.check_quiet(load)
                    witness.check_log(load.acked, from_start=number == rounds)
                    load.ask("resume")
                    say(f"round {number}: {load.ack_count} messages, {time.monotonic() - began:.0f} s")
            except Broken as broken:
                raise Broken(f"round {number}: {broken}") from None
    finally:
        load.close()
        witness.close()
    again = {name: load.seen_counts[name] - load.ack_count for name in SUBSCRIPTIONS}
    return (
        f"{rounds} rounds, {load.ack_count} messages acknowledged, processed once more: "
        f"{', '.join(f'{name} {count}' for name, count in again.items())}, "
        f"{time.monotonic() - began:.0f} s: all kept"
    )


def _one_round(server: Server, load: Load, witness: Witness, choose: random.Random) -> None:
    load.wait_for_progress()
    time.sleep(choose.uniform(0, RUN_SECONDS_MAX))  # the random moment: nothing is waited for
    server.kill()
    load.ask("mark")
    ends = [max(numbers, default=-1) + 1 for numbers in load.acked]
    while choose.random() < RECOVERY_KILL_SHARE:
        server.spawn()
        time.sleep(choose.uniform(0, RECOVERY_SECONDS_MAX))
        server.kill()
    server.spawn()
    server.wait_ready()
    for partition, end in enumerate(ends):
        if (found := witness.end(partition)) < end:
            raise Broken(f"partition {partition} ends at {found}, message {end - 1} was acknowledged")
    positions = {name: witness.positions(name) for name in SUBSCRIPTIONS}
    load.ask("mark")  # what moved them meanwhile was said before
    for name, found_positions in positions.items():
        for partition, position in enumerate(found_positions):
            check_position(name, partition, position, load.seen[name][partition])


def check_position(subscription: str, partition: int, position: int, acknowledged: set[int]) -> None:
    """`Broken` if a message below `position` was never acknowledged."""
    for number in range(position):
        if number not in acknowledged:
            raise Broken(
                f"{subscription} is at {position} of partition {partition}, {number} was never acknowledged"
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
    command = f"python -m tests.crash.server.pulsar_rounds --rounds {options.rounds} --seed {seed}"
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
