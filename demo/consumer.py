"""One member of the consumer group, run as a process of its own.

What it reads goes to the parent through a pipe **before** its offsets are committed: the parent plays the part of the
database that a consumer writes to.  A member killed between the two has its last records read again by another member:
at least once.
"""

import time
from array import array
from dataclasses import dataclass
from multiprocessing.connection import Connection

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from demo.flights import checksum, row_of

BATCH_RECORDS = 2_000
COMMIT_BATCHES = 4
POLL_SECONDS = 0.2
SESSION_TIMEOUT_MS = (
    6_000  # how long a killed member keeps its partitions: the least that Kafka's defaults allow
)
HEARTBEAT_MS = 500
LOG_LEVEL = 2  # the client shows what is critical; the rest of its talk would tear the progress bar


@dataclass(frozen=True)
class Batch:
    """Records of one poll, column by column, in the order they were read."""

    sent_at: float  # CLOCK_MONOTONIC, which all processes of a machine share
    partitions: "array[int]"  # the class takes no subscript before Python 3.12
    offsets: "array[int]"
    rows: "array[int]"
    checksums: "array[int]"

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Assigned:
    """The group gave this member these partitions."""

    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Failed:
    """The member cannot go on; the text is one sentence."""

    reason: str


Report = Batch | Assigned | Failed


class Go:
    """From the parent: start reading."""


class Stop:
    """From the parent: commit, leave the group, end."""


def main(bootstrap: str, topic: str, group: str, name: str, pipe: Connection, wait_for_go: bool) -> None:
    """Reads until told to stop.  With `wait_for_go` it joins, says what it got, and reads nothing before `Go`."""
    try:
        _Member(bootstrap, topic, group, name, pipe, reading=not wait_for_go).run()
    except KafkaException as error:
        pipe.send(Failed(str(error)))
    except (BrokenPipeError, EOFError):
        return  # the parent has gone


class _Member:
    def __init__(
        self, bootstrap: str, topic: str, group: str, name: str, pipe: Connection, *, reading: bool
    ) -> None:
        self.pipe = pipe
        self.reading = reading
        self.uncommitted = 0  # batches
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                # Partitions go by the order of member ids, which begin with this: a member that comes back gets its
                # own.
                "client.id": name.replace(" ", "-"),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "log_level": LOG_LEVEL,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def run(self) -> None:
        try:
            while self._obey():
                if batch := self._poll():
                    self.pipe.send(batch)
                    self.uncommitted += 1
                if self.uncommitted >= COMMIT_BATCHES:
                    self._commit()
            self._commit()
        finally:
            self.consumer.close()

    def _obey(self) -> bool:
        """False once the parent wants this member to stop."""
        while self.pipe.poll():
            if isinstance(self.pipe.recv(), Stop):
                return False
            self.reading = True
            self.consumer.resume(self.consumer.assignment())
        return True

    def _poll(self) -> Batch | None:
        batch = Batch(0.0, array("i"), array("q"), array("i"), array("L"))
        for message in self.consumer.consume(BATCH_RECORDS, POLL_SECONDS):
            if error := message.error():
                if error.fatal() or error.code() in (
                    KafkaError.UNKNOWN_TOPIC_OR_PART,
                    KafkaError.TOPIC_AUTHORIZATION_FAILED,
                ):
                    raise KafkaException(error)
                continue  # the client retries by itself
            key, value = message.key(), message.value() or b""
            batch.partitions.append(message.partition() or 0)
            batch.offsets.append(message.offset() or 0)
            batch.rows.append(row_of(value))
            batch.checksums.append(checksum(key, value))
        if not batch.rows:
            return None
        return Batch(time.monotonic(), batch.partitions, batch.offsets, batch.rows, batch.checksums)

    def _commit(self) -> None:
        if self.uncommitted:
            self.consumer.commit(asynchronous=False)
            self.uncommitted = 0

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        if not self.reading:
            consumer.pause(partitions)
        self.pipe.send(Assigned(tuple(sorted(each.partition for each in partitions))))

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._commit()  # the next owner of these partitions goes on where this member stopped
