"""The load under a server that is being killed: Kafka clients in a process of their own (child.py).

    python -m tests.crash.server.load BOOTSTRAP TOPIC GROUP PARTITIONS SEED

An idempotent producer with acks=all writes numbered records to every partition; a consumer of the group
commits what it has read.  Beside what every load says:

    {"acks": [[partition, number, offset], ...]}     records
    {"wanted": [[partition, offset], ...]}           a commit that is about to be sent
    {"committed": [[partition, offset], ...]}        the same, acknowledged
"""

import sys
import threading
from typing import Any

import confluent_kafka

from tests.crash.server import child
from tests.crash.server.child import say

RECORDS_PER_SECOND = 1500
LARGE_EVERY = 150


class Writer(child.Writer):
    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(partitions, seed, RECORDS_PER_SECOND, LARGE_EVERY)
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,  # that the server goes away is the point, not news
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 0,  # never give up: then the log must hold each record exactly once
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "socket.timeout.ms": 10_000,
                "error_cb": self._on_error,
            }
        )

    def send(self, partition: int, number: int, value: bytes) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error:
                self.given_up(partition, number, error)
            else:
                self.acknowledged(partition, number, message.offset())

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)

    def work(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            say(broken=f"fatal error of the producer: {error}")


class Reader(threading.Thread):
    """A member of the group: reads, checks that each partition comes in order, commits, says what was committed."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,  # that the server goes away is the point, not news
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 10_000,
            }
        )
        self._next: dict[int, int] = {}

    def run(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=lambda *_: self._next.clear())
        while True:
            ends: dict[int, int] = {}
            for message in self._consumer.consume(500, 0.05):
                if message.error():
                    continue  # connection trouble: expected here
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                expected = self._next.get(partition, offset)
                if offset != expected:
                    say(
                        broken=f"the group read offset {offset} of partition {partition} after {expected - 1}"
                    )
                ends[partition] = self._next[partition] = offset + 1
            if ends:
                self._commit(ends)

    def _commit(self, ends: dict[int, int]) -> None:
        say(wanted=list(ends.items()))
        offsets = [confluent_kafka.TopicPartition(self._topic, *end) for end in ends.items()]
        try:
            answer = self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # not acknowledged: nothing is promised
        say(committed=[(each.partition, each.offset) for each in answer if each.error is None])


def main(bootstrap: str, topic: str, group: str, partitions: str, seed: str) -> None:
    writer = Writer(bootstrap, topic, int(partitions), int(seed))
    writer.start()
    Reader(bootstrap, topic, group).start()
    writer.obey()


if __name__ == "__main__":
    main(*sys.argv[1:])
