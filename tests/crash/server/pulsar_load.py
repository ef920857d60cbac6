"""Pulsar clients under a server that is being killed, in a process of their own.

    python pulsar_load.py URL TOPIC PARTITIONS SEED

One producer for each partition writes numbered messages, batched on the odd ones, and never gives up.  A Shared
and a Failover subscription, named by `SUBSCRIPTIONS`, have two consumers each, which leave and come back now and
then; they acknowledge what they process, and on Shared they put off or refuse some of it first.

Events go to standard output, one JSON object a line:

    {"acks": [[partition, number], ...]}             acknowledged by the broker
    {"seen": [subscription, partition, [number...]]} processed, and about to be acknowledged
    {"broken": "..."}                                something that must never happen

Commands come on standard input, one word a line, and are answered with `{"done": word}`: `mark` at once, `pause`
when everything written is acknowledged, `resume`, `stop`.
"""

import json
import os
import random
import sys
import threading
import time
import zlib
from typing import Any

import pulsar  # type: ignore[import-untyped]

MESSAGES_PER_SECOND = 900
OUTSTANDING_MAX = 400
LARGE_EVERY = 200  # one message in so many is 64 KiB to 512 KiB
DRAIN_TIMEOUT_S = 60.0
CONSUMERS = 2
STAY_S = (0.5, 4.0)
NACK_DELAY_MS = 200
SUBSCRIPTIONS = {"shared": pulsar.ConsumerType.Shared, "failover": pulsar.ConsumerType.Failover}
_OUTPUT = threading.Lock()


def say(**event: Any) -> None:
    line = json.dumps(event, separators=(",", ":"))
    with _OUTPUT:
        print(line, flush=True)


def payload(partition: int, number: int, source: random.Random) -> bytes:
    """`crc32 partition number padding`: says which message it is and whether it is whole."""
    large = source.randrange(LARGE_EVERY) == 0
    padding = source.randbytes(source.randrange(64 << 10, 512 << 10) if large else source.randrange(1, 1024))
    body = b"%d %d " % (partition, number) + padding
    return b"%08x " % zlib.crc32(body) + body


def numbers_of(data: bytes) -> tuple[int, int]:
    """Partition and number; `ValueError` if the message is not whole."""
    crc, _, body = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise ValueError(f"a message of {len(data)} bytes is damaged")
    partition, number = body.split(b" ", 2)[:2]
    return int(partition), int(number)


class Writer(threading.Thread):
    def __init__(self, client: pulsar.Client, topic: str, partitions: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._topic = topic
        self._numbers = [0] * partitions
        self._random = random.Random(seed)
        self._lock = threading.Lock()  # receipts come on a thread of the client
        self._acks: list[tuple[int, int]] = []
        self._outstanding = 0
        self.wanted = threading.Event()
        self.wanted.set()
        self.idle = threading.Event()

    def run(self) -> None:
        producers = [self._producer(partition) for partition in range(len(self._numbers))]
        allowance, then = 0.0, time.monotonic()
        while True:
            if not self.wanted.is_set():
                self._drain()
                self.idle.set()
                self.wanted.wait()
                then = time.monotonic()
            now = time.monotonic()
            allowance = min(allowance + (now - then) * MESSAGES_PER_SECOND, OUTSTANDING_MAX)
            then = now
            while allowance >= 1 and self._outstanding < OUTSTANDING_MAX:
                self._write(producers)
                allowance -= 1
            self._report()
            time.sleep(0.01)

    def _producer(self, partition: int) -> pulsar.Producer:
        return self._client.create_producer(
            f"{self._topic}-partition-{partition}",
            producer_name=f"load-{partition}",
            # Never given up and found again by its name: with deduplication the log then holds each message once.
            send_timeout_millis=0,
            max_pending_messages=4 * OUTSTANDING_MAX,
            batching_enabled=partition % 2 == 1,
            batching_max_publish_delay_ms=5,
        )

    def _write(self, producers: list[pulsar.Producer]) -> None:
        partition = self._random.randrange(len(producers))
        number = self._numbers[partition]
        data = payload(partition, number, self._random)

        def acknowledged(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
            with self._lock:
                self._outstanding -= 1
                if result == pulsar.Result.Ok:
                    self._acks.append((partition, number))
            if result != pulsar.Result.Ok:
                say(broken=f"message {number} of partition {partition} was given up: {result}")

        with self._lock:
            self._outstanding += 1
        self._numbers[partition] += 1
        producers[partition].send_async(data, acknowledged, sequence_id=number)

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while self._outstanding and time.monotonic() < deadline:
            self._report()
            time.sleep(0.01)
        self._report()
        if self._outstanding:
            say(
                broken=f"{self._outstanding} messages are not acknowledged {DRAIN_TIMEOUT_S:g} s after a restart"
            )

    def _report(self) -> None:
        with self._lock:
            acks, self._acks = self._acks, []
        if acks:
            say(acks=acks)


class Reader(threading.Thread):
    """One consumer of a subscription: processes, says so, acknowledges; goes away now and then and comes back."""

    def __init__(self, client: pulsar.Client, topic: str, subscription: str, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._name = name
        self._random = random.Random(seed)

    def run(self) -> None:
        while True:
            try:
                consumer = self._client.subscribe(
                    self._topic,
                    self._subscription,
                    SUBSCRIPTIONS[self._subscription],
                    consumer_name=self._name,
                    initial_position=pulsar.InitialPosition.Earliest,
                    negative_ack_redelivery_delay_ms=NACK_DELAY_MS,
                    receiver_queue_size=100,
                    batch_index_ack_enabled=self._random.random() < 0.5,
                )
            except pulsar.PulsarException:  # the server is away
                time.sleep(0.05)
                continue
            try:
                self._stay(consumer, time.monotonic() + self._random.uniform(*STAY_S))
                consumer.close()
            except pulsar.PulsarException as error:
                if not isinstance(error, pulsar.AlreadyClosed | pulsar.ConnectError | pulsar.NotConnected):
                    say(broken=f"{self._name}: {type(error).__name__}: {error}")

    def _stay(self, consumer: pulsar.Consumer, until: float) -> None:
        while time.monotonic() < until:
            try:
                message = consumer.receive(50)
            except pulsar.Timeout:
                continue
            if self._subscription == "shared" and self._random.random() < 0.05:
                consumer.negative_acknowledge(message)
                continue
            if self._subscription == "shared" and self._random.random() < 0.01:
                continue  # neither: it comes again when this consumer leaves
            try:
                partition, number = numbers_of(message.data())
            except ValueError as error:
                say(broken=f"{self._name}: {error}")
                return
            say(seen=[self._subscription, partition, [number]])
            consumer.acknowledge(message)


def main(url: str, topic: str, partitions: str, seed: str) -> None:
    # That the server goes away is the point, not news.
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(url, logger=logger, operation_timeout_seconds=10)
    for index, subscription in enumerate(list(SUBSCRIPTIONS) * CONSUMERS):
        Reader(client, topic, subscription, f"{subscription}-{index}", int(seed) + 1 + index).start()
    writer = Writer(client, topic, int(partitions), int(seed))
    writer.start()
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
