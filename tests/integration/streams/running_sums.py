"""`Sums.java` beside a server, amounts for it, and what it has to make of them.

An amount is the number of its record, so that no two are equal: what an account's sum grows by names the record.  With
`exactly_once_v2` the committed records of an account are then one for each amount, counted from 1 on, and the amounts
of one partition come in the order in which they were written.
"""

import random
import shutil
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_programs import JavaProgram
from tests.integration.partition_reader import read_partition

SOURCE = Path(__file__).with_name("Sums.java")
AMOUNTS, SUMS = "amounts", "sums"
REPARTITION, CHANGELOG = "sums-by-account-repartition", "sums-totals-changelog"
PARTITIONS = 2
ACCOUNTS = [f"account-{number}" for number in range(7)]
TIMEOUT_S = 180.0
SETTINGS = {
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class Broken(Exception):
    """A promise was broken; one line."""


class RunningSums:
    """One server, one application of one instance or two, the amounts that were written, and the sums that were read so
    far.
    """

    def __init__(self, server: MagnetarProcess, folder: Path, seed: int, protocol: str = "classic") -> None:
        self.server = server
        self.sums: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)  # of an account: count and sum
        self.read_count = 0
        self._written: list[str] = []  # whose each amount is
        self._chance = random.Random(seed)
        self._state = folder / "state"
        self.application, self.other = (
            JavaProgram(
                SOURCE.stem, [server.bootstrap, str(state), protocol], source=SOURCE, timeout_s=TIMEOUT_S
            )
            for state in (self._state, folder / "other state")
        )
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (AMOUNTS, SUMS)]).values():
            made.result(TIMEOUT_S)
        self._producer = Producer(
            {
                "bootstrap.servers": server.bootstrap,
                "log_level": 0,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._reader = Consumer(
            {
                "bootstrap.servers": server.bootstrap,
                "log_level": 0,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._reader.assign([TopicPartition(SUMS, index, 0) for index in range(PARTITIONS)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.application.kill()
        self.other.kill()
        self._reader.close()

    @property
    def written_count(self) -> int:
        return len(self._written)

    def write(self, count: int) -> None:
        """So many amounts more, of accounts drawn at random; on their way when this returns."""
        for _ in range(count):
            number, account = len(self._written), self._chance.choice(ACCOUNTS)
            self._written.append(account)
            self._producer.produce(AMOUNTS, f"{account} {number}".encode(), partition=number % PARTITIONS)
        self._producer.poll(0)

    def wait_for(self, count: int) -> None:
        """Until so many committed sums have been read."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.read_count < count:
            if time.monotonic() > deadline:
                raise Broken(f"{self.read_count} sums of {count} came:\n{self.application.tail}")
            if not self.application.running and not self.other.running:
                raise Broken(f"the application has ended by itself:\n{self.application.tail}")
            self._producer.poll(0)
            if (message := self._reader.poll(0.1)) is not None and message.error() is None:
                key, value = message.key() or b"", (message.value() or b"").decode()
                number, total = map(int, value.split())
                self.sums[key.decode()].append((number, total))
                self.read_count += 1

    def finish(self) -> None:
        """Until there is a sum for each amount; then all are what they have to be, and nothing else is there."""
        while left := self._producer.flush(1.0):
            if not self.server.running:
                raise Broken(f"{left} amounts are left and the server has ended")
        self.wait_for(self.written_count)
        self.check()

    def check(self) -> None:
        expected: defaultdict[str, list[int]] = defaultdict(list)
        for number, account in enumerate(self._written):
            expected[account].append(number)
        for account in ACCOUNTS:
            counts = [number for number, _ in self.sums[account]]
            if counts != list(range(1, len(expected[account]) + 1)):
                raise Broken(f"{account} has {len(expected[account])} amounts and was counted so: {counts}")
            totals = [0, *(total for _, total in self.sums[account])]
            amounts = [after - before for before, after in pairwise(totals)]
            for partition in range(PARTITIONS):
                wanted = [number for number in expected[account] if number % PARTITIONS == partition]
                if (found := [number for number in amounts if number % PARTITIONS == partition]) != wanted:
                    raise Broken(
                        f"{account} has {wanted} in partition {partition} and was added up so: {found}"
                    )
        log_end = sum(len(read_all(self.server, SUMS, index)) for index in range(PARTITIONS))
        if log_end != self.written_count:
            raise Broken(f"{SUMS} has {log_end} committed records for {self.written_count} amounts")

    def wait_until_compacted(self) -> int:
        """Write on until compaction has removed half of the changelog; how many of its records are left."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            left = sum(len(read_all(self.server, CHANGELOG, index)) for index in range(PARTITIONS))
            if left * 2 < self.written_count:
                return left
            if time.monotonic() > deadline:
                raise Broken(f"{CHANGELOG} has {left} records of {self.written_count}, and is not compacted")
            self.write(len(ACCOUNTS))  # what is open is not compacted; a record more closes it
            self.finish()

    def forget_state(self) -> None:
        """Remove what the application has on disk: it has to restore all from the changelog."""
        assert not self.application.running
        shutil.rmtree(self._state)

    def config_of(self, topic: str) -> dict[str, str]:
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in found.result(TIMEOUT_S).items()}


def read_all(server: MagnetarProcess, topic: str, partition: int) -> list[Message]:
    """The committed records that are in a partition now."""
    return read_partition(server, topic, partition, timeout_s=TIMEOUT_S, no_end=Broken)
