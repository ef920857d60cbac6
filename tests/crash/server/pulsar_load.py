"""Pulsar clients under a server that is being killed, in a process of their own (child.py).

    python -m tests.crash.server.pulsar_load URL TOPIC PARTITIONS SEED

One producer for each partition writes numbered messages, batched on the odd ones, and never gives up.  A Shared
and a Failover subscription, named by `SUBSCRIPTIONS`, have two consumers each, which leave and come back now and
then; they acknowledge what they process, and on Shared they put off or refuse some of it first.  Beside what every
load says:

    {"acks": [[partition, number], ...]}             acknowledged by the broker
    {"seen": [subscription, partition, [number...]]} processed, and about to be acknowledged
"""

import os
import random
import sys
import threading
import time

import pulsar

from tests.crash.server import child
from tests.crash.server.child import OUTSTANDING_MAX, numbers_of, say

MESSAGES_PER_SECOND = 900
LARGE_EVERY = 200
CONSUMERS = 2
STAY_S = (0.5, 4.0)
NACK_DELAY_MS = 200
SUBSCRIPTIONS = {"shared": pulsar.ConsumerType.Shared, "failover": pulsar.ConsumerType.Failover}


class Writer(child.Writer):
    def __init__(self, client: pulsar.Client, topic: str, partitions: int, seed: int) -> None:
        super().__init__(partitions, seed, MESSAGES_PER_SECOND, LARGE_EVERY)
        self._client = client
        self._topic = topic
        self._producers: list[pulsar.Producer] = []

    def run(self) -> None:
        self._producers = [self._producer(partition) for partition in range(len(self._numbers))]
        super().run()

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

    def send(self, partition: int, number: int, value: bytes) -> None:
        def done(result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                self.acknowledged(partition, number)
            else:
                self.given_up(partition, number, result)

        self._producers[partition].send_async(value, done, sequence_id=number)

    def work(self, seconds: float) -> None:
        time.sleep(seconds)  # the client has threads of its own


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
    writer.obey()


if __name__ == "__main__":
    main(*sys.argv[1:])
