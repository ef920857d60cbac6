"""A compacted topic of gigabytes with very many keys, beside a client that is timed, and killed again and again.

    python -m tests.soak.compaction --megabytes 2048 --keys 1000000 --kills 50 --seed 1

The first half of the records is written while nothing may be compacted yet.  Then a client that produces one record
after the other at an even pace is timed, first alone and then beside the compaction of that half.  The rest is written
in as many pieces as there are kills: the server is killed at a random moment of each, with compaction under way.

Every tenth kill, and at the end, the topic is read and compared with the list of what was sent: the last record of each
key is there, or nothing where that is a tombstone; what else is there was sent, and everything is in order.

It fails when a record is missing, wrong or out of place, and when nothing was compacted.  The timed client's p99 alone
and beside compaction are printed; with `--ratio` it also fails when the latter is more than so many times the former.

`--planted`: the server has a bug (`planted.py`), which has to be found.
"""

import argparse
import random
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import confluent_kafka
import numpy as np
import numpy.typing as npt
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.soak import planted
from tests.soak.mixed_history import Broken
from tests.soak.processes import READY_S

TOPIC = "kept"
PROBE = "timed"
TIMEOUT_S = 120.0
VALUE_BYTES = 180
PACE_S = 0.01
ALONE_S = 20.0
KILL_S_MAX = 2.5
CHECK_EVERY = 10
TOMBSTONE_EVERY = 40
SEGMENTS = 32  # that all records would fill
HELD_MS = 1 << 40
SETTINGS = {"log.cleaner.backoff.ms": "100"}


def key_of(number: int) -> bytes:
    return b"key-%08d" % number


def value_of(key: int, number: int) -> bytes | None:
    """What record `number` has; None for a tombstone."""
    text = b"%d %d " % (key, number)
    crc = zlib.crc32(text)
    if crc % TOMBSTONE_EVERY == 0:
        return None
    return (text + b"%08x" % crc * (VALUE_BYTES // 8))[:VALUE_BYTES]


class Load:
    """Writes records, each of a key drawn at random, and knows the last one of each."""

    def __init__(self, server: MagnetarProcess, keys: int, seed: int) -> None:
        self.keys_of = np.empty(1 << 20, np.int32)  # by number
        self.count = 0
        self._chance = np.random.default_rng(seed)
        self._keys = keys
        self._failures: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "log_level": 0,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 20,
                "batch.size": 1 << 18,
                "queue.buffering.max.messages": 200_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )

    def write(self, count: int) -> None:
        """Send so many records and wait until all of them are acknowledged."""
        if self.count + count > len(self.keys_of):
            self.keys_of = np.resize(self.keys_of, 2 * (self.count + count))
        drawn = self._chance.integers(0, self._keys, count, np.int32)
        self.keys_of[self.count : self.count + count] = drawn
        for number, key in enumerate(drawn.tolist(), self.count):
            while True:
                try:
                    self._producer.produce(
                        TOPIC,
                        value_of(key, number),
                        key_of(key),
                        0,
                        self._delivered,
                        headers={"n": b"%d" % number},
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            if number % 1000 == 0:
                self._producer.poll(0)
        self.count += count
        while self._producer.flush(1.0):
            pass
        if self._failures:
            raise Broken(self._failures[0])

    def _delivered(self, error: confluent_kafka.KafkaError | None, _message: object) -> None:
        if error is not None:
            self._failures.append(f"a record was given up: {error}")

    def check(self, server: MagnetarProcess) -> int:
        """Compare the topic with what was sent; how many records it has."""
        return check(read_all(server), self.keys_of[: self.count], self._keys)


class Found(NamedTuple):
    """A record that was read; `number` is what its header says, -1 for nothing."""

    offset: int
    number: int
    key: bytes | None
    value: bytes | None


def check(records: Iterable[Found], keys_of: npt.NDArray[np.int32], keys: int) -> int:
    """Compare what was read with what was sent, which is the key of each record; how many were read.  Raises Broken."""
    newest = np.full(keys, -1, np.int64)
    count, before = 0, -1
    for offset, number, its_key, value in records:
        if offset != number or not before < number < len(keys_of):
            raise Broken(f"offset {offset} behind {before} has record {number} of {len(keys_of)}")
        key = int(keys_of[number])
        if its_key != key_of(key) or value != value_of(key, number):
            raise Broken(f"the record at offset {offset} is not the one that was sent")
        newest[key] = before = number
        count += 1
    last = np.full(keys, -1, np.int64)
    last[keys_of] = np.arange(len(keys_of))  # of equal indexes the last one counts
    for key in np.flatnonzero(newest != last).tolist():
        number = int(last[key])
        if newest[key] >= 0 or value_of(key, number) is not None:
            raise Broken(f"key {key} has record {newest[key]} as its last one, {number} was acknowledged")
    return count


def read_all(server: MagnetarProcess) -> Iterator[Found]:
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "log_level": 0,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    reader.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while True:
            messages = reader.consume(5000, 0.2)
            if messages:
                deadline = time.monotonic() + TIMEOUT_S
            elif time.monotonic() > deadline:
                raise Broken("the topic cannot be read to its end")
            for message in messages:
                error = message.error()
                if error is None:
                    headers = dict(message.headers() or [])
                    number = int(headers.get("n") or b"-1")
                    yield Found(message.offset() or 0, number, message.key(), message.value())
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return
                else:
                    raise Broken(f"the topic cannot be read: {error}")
    finally:
        reader.close()


class Timed(threading.Thread):
    """Produces one record after the other, and notes how long each took."""

    def __init__(self, server: MagnetarProcess) -> None:
        super().__init__(daemon=True)
        self.took_s: list[float] = []
        self._is_over = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "log_level": 0, "linger.ms": 0}
        )

    def run(self) -> None:
        while not self._is_over.wait(PACE_S):
            began = time.perf_counter()
            self._producer.produce(PROBE, b"x" * 100)
            self._producer.flush()
            self.took_s.append(time.perf_counter() - began)

    def end(self) -> None:
        self._is_over.set()
        self.join()

    def p99_ms(self, first: int, end: int) -> float:
        taken = sorted(self.took_s[first:end])
        if not taken:
            raise Broken("nothing was timed")
        return taken[len(taken) * 99 // 100] * 1000


def metrics(server: MagnetarProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.http_url}/metrics") as page:
        lines = page.read().decode().splitlines()
    rows = [line.split() for line in lines if line.startswith("magnetar_compaction_")]
    return {name.removeprefix("magnetar_compaction_"): float(value) for name, value in rows}


def wait_until_compacted(server: MagnetarProcess) -> None:
    """Until a run has ended that took something out."""
    deadline = time.monotonic() + TIMEOUT_S
    while not metrics(server)["removed_records_total"]:
        if time.monotonic() > deadline:
            raise Broken(f"nothing was compacted within {TIMEOUT_S:g} s")
        time.sleep(0.1)


def wait_until_clean(server: MagnetarProcess) -> None:
    """Until no run has begun for a while."""
    quiet_since = time.monotonic()
    before = metrics(server)
    deadline = time.monotonic() + 30 * TIMEOUT_S
    while time.monotonic() - quiet_since < 2.0:
        if time.monotonic() > deadline:
            raise Broken("compaction does not come to an end")
        time.sleep(0.1)
        now = metrics(server)
        if now["left_bytes"] or now["runs_total"] != before["runs_total"]:
            quiet_since = time.monotonic()
        before = now


def make_topics(server: MagnetarProcess, megabytes: int) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str((megabytes << 20) // SEGMENTS),
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": str(HELD_MS),
        "delete.retention.ms": "1000",
    }
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    new = [NewTopic(TOPIC, 1, 1, config=config), NewTopic(PROBE, 1, 1)]
    for made in admin.create_topics(new).values():
        made.result(TIMEOUT_S)


def let_compact(server: MagnetarProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    entry = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


def timed(server: MagnetarProcess, ratio: float, alone_s: float) -> str:
    """Let the topic be compacted beside a client that is timed, after so long alone; what came of it."""
    client = Timed(server)
    client.start()
    try:
        time.sleep(alone_s)
        alone = len(client.took_s)
        began = time.monotonic()
        let_compact(server)
        wait_until_compacted(server)
        wait_until_clean(server)
        beside = len(client.took_s)
    finally:
        client.end()
    found = metrics(server)
    quiet_ms, busy_ms = client.p99_ms(0, alone), client.p99_ms(alone, beside)
    line = (
        f"compacted in {time.monotonic() - began:.0f} s, {found['read_bytes_total'] / found['seconds_total'] / 1e6:.0f}"
        f" MB/s read, {found['won_bytes_total'] / 1e6:.0f} MB won; produce p99 {quiet_ms:.2f} ms alone,"
        f" {busy_ms:.2f} ms beside it ({busy_ms / quiet_ms:.1f} times)"
    )
    if 0 < ratio * quiet_ms < busy_ms:
        raise Broken(f"{line}: more than {ratio:g} times that")
    return line


def started(bug: str = "") -> MagnetarProcess:
    """A server that compacts whenever there is something to compact, with a bug if one is named."""
    command = planted.command(bug) if bug else None
    return MagnetarProcess(settings=SETTINGS, command=command, ready_timeout_s=READY_S)


def run(server: MagnetarProcess, options: argparse.Namespace, seed: int) -> str:
    began = time.monotonic()
    choose = random.Random(seed)
    make_topics(server, options.megabytes)
    load = Load(server, options.keys, seed)
    total = options.megabytes * 1_000_000 // (VALUE_BYTES + len(key_of(0)))
    load.write(total // 2)
    print(f"  {load.count} records, {time.monotonic() - began:.0f} s", flush=True)
    print(f"  {timed(server, options.ratio, options.alone)}", flush=True)
    print(f"  {load.check(server)} records are left", flush=True)
    for kill in range(1, options.kills + 1):
        with ThreadPoolExecutor(1) as writer:
            written = writer.submit(load.write, total // 2 // options.kills)
            time.sleep(choose.uniform(0, KILL_S_MAX))  # the random moment: nothing is waited for
            server.kill()
            server.restart()
            written.result()
        if kill % CHECK_EVERY == 0:
            print(
                f"  kill {kill}: {load.check(server)} records, {time.monotonic() - began:.0f} s", flush=True
            )
    wait_until_clean(server)
    left = load.check(server)
    if "Traceback" in server.log:
        raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
    return (
        f"{load.count} records of {options.keys} keys, {options.kills} kills, {left} records left,"
        f" {time.monotonic() - began:.0f} s: all kept"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=2048, help="of keys and values, uncompressed")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--ratio", type=float, default=0.0, help="of the timed client's p99, at most; 0: any, it is printed"
    )
    parser.add_argument("--alone", type=float, default=ALONE_S, help="seconds in which the client is alone")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--planted", choices=planted.BUGS, default="", help="a bug that the server has")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    command = (
        f"python -m tests.soak.compaction --megabytes {options.megabytes} --keys {options.keys}"
        f" --kills {options.kills} --seed {seed}"
    )
    command += f" --planted {options.planted}" if options.planted else ""
    print(command, flush=True)
    try:
        with started(options.planted) as server:
            print(run(server, options, seed), flush=True)
    except Broken as broken:
        print(f"FAILED {command}: {broken}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
