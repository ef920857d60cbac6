"""The load under a server that is being killed: its own process, so that what was acknowledged survives.

    python load.py BOOTSTRAP TOPIC GROUP PARTITIONS SEED

An idempotent producer with acks=all writes numbered records to every partition; a consumer of the group
commits what it has read.  Events go to standard output, one JSON object a line, each after the broker has
acknowledged it:

    {"acks": [[partition, number, offset], ...]}     records
    {"wanted": [[partition, offset], ...]}           a commit that is about to be sent
    {"committed": [[partition, offset], ...]}        the same, acknowledged
    {"broken": "..."}                                something that must never happen

Commands come on standard input, one word a line, and are answered with `{"done": word}`: `mark` at once,
`pause` when nothing is written any more and everything written is acknowledged, `resume`, `stop`.
"""

import json
import random
import sys
import threading
import time
import zlib
from typing import Any

import confluent_kafka

RECORDS_PER_SECOND = 1500
OUTSTANDING_MAX = 400  # what is in flight when the server dies
LARGE_EVERY = 150  # one record in so many is 64 KiB to 512 KiB
FLUSH_TIMEOUT_S = 60.0
_OUTPUT = threading.Lock()


def say(**event: Any) -> None:
    line = json.dumps(event, separators=(",", ":"))
    with _OUTPUT:
        print(line, flush=True)


def payload(partition: int, number: int, source: random.Random) -> bytes:
    """`crc32 partition number padding`: says which record it is and whether it is whole."""
    large = source.randrange(LARGE_EVERY) == 0
    padding = source.randbytes(source.randrange(64 << 10, 512 << 10) if large else source.randrange(1, 1024))
    body = b"%d %d " % (partition, number) + padding
    return b"%08x " % zlib.crc32(body) + body


class Writer(threading.Thread):
    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(daemon=True)
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
        self._topic = topic
        self._numbers = [0] * partitions
        self._random = random.Random(seed)
        self._acks: list[tuple[int, int, int]] = []
        self._outstanding = 0
        self.wanted = threading.Event()
        self.wanted.set()
        self.idle = threading.Event()

    def run(self) -> None:
        allowance, then = 0.0, time.monotonic()
        while True:
            if not self.wanted.is_set():
                self._drain()
                self.idle.set()
                self.wanted.wait()
                then = time.monotonic()
            now = time.monotonic()
            allowance = min(allowance + (now - then) * RECORDS_PER_SECOND, OUTSTANDING_MAX)
            then = now
            while allowance >= 1 and self._outstanding < OUTSTANDING_MAX:
                self._write()
                allowance -= 1
            self._producer.poll(0.01)
            self._report()

    def _write(self) -> None:
        partition = self._random.randrange(len(self._numbers))
        number = self._numbers[partition]
        value = payload(partition, number, self._random)

        def delivered(error: Any, message: Any) -> None:
            self._outstanding -= 1
            if error:
                say(broken=f"record {number} of partition {partition} was given up: {error}")
            else:
                self._acks.append((partition, number, message.offset()))

        self._producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
        self._numbers[partition] += 1
        self._outstanding += 1

    def _drain(self) -> None:
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        self._report()
        if left:
            say(
                broken=f"{left} records were not acknowledged {FLUSH_TIMEOUT_S:g} s after the server was back"
            )

    def _report(self) -> None:
        if self._acks:
            acks, self._acks = self._acks, []
            say(acks=acks)

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
    for line in sys.stdin:
        match line.strip():
            case "pause":
                writer.idle.clear()
                writer.wanted.clear()
                writer.idle.wait()
            case "resume":
                writer.wanted.set()
        say(done=line.strip())
        if line.strip() == "stop":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
