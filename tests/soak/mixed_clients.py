"""A client that writes, or copies, in transactions until its input ends; a process of its own, which may be killed.

    python -m tests.soak.mixed_clients KIND NAME SEED BOOTSTRAP PULSAR_URL FOLDER

It says of each transaction `open NAME`, `committing NAME`, `committed NAME`, `aborted NAME`, one a line, before it goes
on.  A client that is begun again under the same name ends what the one before has left open (Kafka), or leaves it to
its time-out (Pulsar).
"""

import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from tests.integration.pulsar_transactions.java_transactions import JavaTransactions, Refused
from tests.soak.mixed_history import NOT_A_COPY, Record

SOURCE = "mixed-source"
TARGETS = ("mixed-a", "mixed-b")
COPIES = {"copier": "mixed-copied", "taker": "mixed-taken"}
"""By who makes them: a Kafka client with its group's offsets, a Pulsar client with acknowledgements."""
PARTITIONS = 2
TOPICS = (SOURCE, *TARGETS, *COPIES.values())

TIMEOUT_MS = 8_000  # of a transaction
REQUEST_S = 30.0
RETRY_S = 0.2
POLL_S = 0.5
RECORDS_MAX = 6
COPIED_MAX = 12
ABORTED_SHARE = 0.3
OPEN_SHARE = 0.05

ended = threading.Event()


def say(state: str, transaction: str) -> None:
    print(state, transaction, flush=True)


class Client(ABC):
    """`step` does one transaction."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.choose = random.Random(seed)
        self._begun = 0

    @abstractmethod
    def step(self) -> None: ...

    def next_transaction(self) -> str:
        self._begun += 1
        return f"{self.name}.{os.getpid()}.{self._begun}"

    def records(self, transaction: str, origins: Sequence[str] = ()) -> list[Record]:
        """The records of a transaction: copies, or new ones."""
        count = len(origins) or self.choose.randint(1, RECORDS_MAX)
        return [
            Record(transaction, number, count, origins[number] if origins else NOT_A_COPY)
            for number in range(count)
        ]

    def topic(self) -> str:
        return self.choose.choice((SOURCE, *TARGETS))


# --- Kafka's --------------------------------------------------------------------------------------


class KafkaWriter(Client):
    """librdkafka, which speaks the protocol of KIP-98."""

    def __init__(self, name: str, seed: int, bootstrap: str) -> None:
        super().__init__(name, seed)
        self.bootstrap = bootstrap
        self.connect()

    def connect(self) -> None:
        """A new producer, which ends what the one before it has left open."""
        while True:
            self.producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "log_level": 0,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": TIMEOUT_MS,
                    "linger.ms": 1,
                    "reconnect.backoff.ms": 20,
                    "reconnect.backoff.max.ms": 200,
                }
            )
            try:
                self.producer.init_transactions(REQUEST_S)
                return
            except KafkaException:
                time.sleep(RETRY_S)  # until the server is back

    def step(self) -> None:
        transaction = self.next_transaction()
        records = self.records(transaction)
        try:
            self.begin(transaction, [(self.topic(), record) for record in records])
            if self.choose.random() < OPEN_SHARE:
                self.connect()
            else:
                self.end(transaction, commit=self.choose.random() >= ABORTED_SHARE)
        except (KafkaException, TimeoutError):
            self.connect()

    def begin(self, transaction: str, records: Sequence[tuple[str, Record]]) -> None:
        say("open", transaction)
        self.producer.begin_transaction()
        for topic, record in records:
            self.producer.produce(topic, record.encode(), partition=self.choose.randrange(PARTITIONS))
            self.producer.poll(0)

    def end(self, transaction: str, *, commit: bool) -> None:
        if commit:
            say("committing", transaction)
            self._again(self.producer.commit_transaction)
            say("committed", transaction)
        else:
            self._again(self.producer.abort_transaction)
            say("aborted", transaction)

    def _again(self, call: Callable[[float], object]) -> None:
        while True:
            try:
                call(REQUEST_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class Copier(KafkaWriter):
    """Copies the source, with its group's offsets in the same transaction."""

    def connect(self) -> None:
        super().connect()
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "log_level": 0,
                "group.id": self.name,
                "group.instance.id": self.name,  # it takes over from one that was killed
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self.consumer.subscribe([SOURCE])

    def step(self) -> None:
        messages = [one for one in self.consumer.consume(COPIED_MAX, POLL_S) if one.error() is None]
        if not messages:
            return
        positions: dict[int, int] = {}
        for one in messages:
            partition, offset = one.partition(), one.offset()
            assert partition is not None
            assert offset is not None
            positions[partition] = offset + 1
        transaction = self.next_transaction()
        origins = [Record.decode((one.value() or b"").decode()).name for one in messages]
        copies = [(COPIES[self.name], record) for record in self.records(transaction, origins)]
        try:
            self.begin(transaction, copies)
            self._send_positions([TopicPartition(SOURCE, *one) for one in positions.items()])
            commit = self.choose.random() >= ABORTED_SHARE
            self.end(transaction, commit=commit)
            if commit:
                return
        except (KafkaException, TimeoutError):
            pass
        self.consumer.close()
        self.connect()  # and begin where the group stands

    def _send_positions(self, positions: list[TopicPartition]) -> None:
        """librdkafka may wait here for ever, whatever its time-out, when the connection to the coordinator was cut."""
        producer, metadata = self.producer, self.consumer.consumer_group_metadata()
        failures: list[KafkaException] = []
        done = threading.Event()

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(positions, metadata, REQUEST_S)
            except KafkaException as error:
                failures.append(error)
            done.set()

        threading.Thread(target=send, daemon=True).start()
        if not done.wait(REQUEST_S):
            raise TimeoutError
        if failures:
            raise failures[0]


# --- Pulsar's --------------------------------------------------------------------------------------


class PulsarWriter(Client):
    """Pulsar's Java client."""

    def __init__(self, name: str, seed: int, url: str, folder: Path) -> None:
        super().__init__(name, seed)
        self.java = JavaTransactions(url, folder / f"{name}-java.log")

    def step(self) -> None:
        transaction = self.next_transaction()
        try:
            self.begin(transaction, [(self.topic(), record) for record in self.records(transaction)])
            if self.choose.random() >= OPEN_SHARE:
                self.end(transaction, commit=self.choose.random() >= ABORTED_SHARE)
        except Refused:
            time.sleep(RETRY_S)  # the server may be away; what is open is left to its time-out

    def begin(self, transaction: str, records: Sequence[tuple[str, Record]]) -> None:
        self.java.ask("begin", transaction, TIMEOUT_MS)
        say("open", transaction)
        for topic, record in records:
            self.java.ask("send", transaction, topic, "plain", record.encode())

    def end(self, transaction: str, *, commit: bool) -> None:
        if commit:
            say("committing", transaction)
            self.java.ask("commit", transaction)
            say("committed", transaction)
        else:
            self.java.ask("abort", transaction)
            say("aborted", transaction)


class Taker(PulsarWriter):
    """Copies the source, and acknowledges it in the same transaction."""

    def __init__(self, name: str, seed: int, url: str, folder: Path) -> None:
        super().__init__(name, seed, url, folder)
        while True:
            try:
                self.java.ask("subscribe", name, SOURCE, name, "Shared")
                return
            except Refused:
                time.sleep(RETRY_S)

    def step(self) -> None:
        values: list[str] = []
        while len(values) < COPIED_MAX and (found := self.java.ask("silence", self.name, 100)):
            values += found
        values = list(dict.fromkeys(values))  # one that has come again meanwhile is acknowledged once
        if not values:
            return
        transaction = self.next_transaction()
        origins = [Record.decode(one).name for one in values]
        copies = [(COPIES[self.name], record) for record in self.records(transaction, origins)]
        try:
            self.begin(transaction, copies)
            self.java.ask("ack", transaction, self.name, *values)
            self.end(transaction, commit=self.choose.random() >= ABORTED_SHARE)
        except Refused:
            try:
                self.java.ask("abort", transaction)
            except Refused:
                time.sleep(RETRY_S)
            self.java.ask("redeliver", self.name)  # what is in no transaction waits for its consumer


def _listen() -> None:
    sys.stdin.read()
    ended.set()


def main() -> int:
    kind, name, seed, bootstrap, url, folder = sys.argv[1:]
    threading.Thread(target=_listen, daemon=True).start()
    made: dict[str, Callable[[], Client]] = {
        "kafka": lambda: KafkaWriter(name, int(seed), bootstrap),
        "copier": lambda: Copier(name, int(seed), bootstrap),
        "pulsar": lambda: PulsarWriter(name, int(seed), url, Path(folder)),
        "taker": lambda: Taker(name, int(seed), url, Path(folder)),
    }
    client = made[kind]()
    while not ended.is_set():
        client.step()
    os._exit(0)  # threads of a client may wait for a server


if __name__ == "__main__":
    raise SystemExit(main())
