"""A consumer of the queue, until its input ends; a process of its own, which may be killed.

    python -m tests.soak.queue_consumers sharer|taker SEED ADDRESS

A sharer is a share consumer of Kafka's (librdkafka), a taker a Shared consumer of Pulsar's (the C++ client); in Java
they are `QueueSharer.java` and `QueueTaker.java`.  Each prints, before it goes on, one line for many messages: a letter
of `queue_history.LETTERS`, the nanoseconds of the machine's monotonic clock, and the messages, by the numbers that they
have as their values; `g` has `number:delivery count`.  Pulsar's C++ client hears no answers to its acknowledgements.

What they say is drawn at random, but a message of which `POISON` is a divisor is released as often as may be; a taker
gives back only messages that are entries of their own (`is_single`), as the others of a batch would come back with it.
"""

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import confluent_kafka
import pulsar
from confluent_kafka import AcknowledgeType, KafkaException

TOPIC: Final = "queue"
GROUP: Final = "drain"
PARTITIONS: Final = 2
LIMIT: Final = 5  # share.delivery.count.limit
POISON: Final = 97
SINGLE: Final = 5  # every fifth message goes to partition 0, as an entry of its own
RELEASED_SHARE: Final = 0.08
REJECTED_SHARE: Final = 0.01
AT_ONCE_MAX: Final = 200
BATCH: Final = 50  # messages in an entry, at most
PLACES: Final = 20  # the receiver queue of a consumer of Pulsar's, for each partition
RETRY_S: Final = 0.2
KINDS: Final = {"a": AcknowledgeType.ACCEPT, "r": AcknowledgeType.RELEASE, "x": AcknowledgeType.REJECT}

ended = threading.Event()


def is_single(number: int) -> bool:
    return number % SINGLE == 0


def say(letter: str, messages: Iterable[object]) -> None:
    print(letter, time.monotonic_ns(), *messages, flush=True)


def drawn(choose: random.Random, number: int, deliveries: int, *, may_reject: bool) -> str:
    """What to say of a message."""
    if number % POISON == 0:
        return "r" if may_reject or deliveries < LIMIT else "a"
    dice = choose.random()
    if may_reject and dice < REJECTED_SHARE:
        return "x"
    return "r" if dice < REJECTED_SHARE + RELEASED_SHARE else "a"


def share(choose: random.Random, bootstrap: str) -> None:
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": AT_ONCE_MAX,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )
    consumer.subscribe([TOPIC])
    while not ended.is_set():
        try:
            share_some(choose, consumer)
        except KafkaException:
            time.sleep(RETRY_S)  # until the server is back
    consumer.close()


def share_some(choose: random.Random, consumer: confluent_kafka.ShareConsumer) -> None:
    """Take and acknowledge what one poll brings."""
    found = [message for message in consumer.poll(timeout=0.5) or [] if message.error() is None]
    if not found:
        return
    numbers = [int(message.value() or b"") for message in found]
    counts = [message.delivery_count() or 0 for message in found]
    say("g", [f"{number}:{count}" for number, count in zip(numbers, counts, strict=True)])
    kinds = [
        drawn(choose, number, count, may_reject=True) for number, count in zip(numbers, counts, strict=True)
    ]
    for letter in KINDS:
        said = [number for number, kind in zip(numbers, kinds, strict=True) if kind == letter]
        if said:
            say(letter, said)
    for message, kind in zip(found, kinds, strict=True):
        consumer.acknowledge(message, KINDS[kind])
    results = consumer.commit_sync(timeout=30) or {}
    stored = {place.partition for place, error in results.items() if error is None}
    answered = [
        number for number, message in zip(numbers, found, strict=True) if message.partition() in stored
    ]
    if answered:
        say("d", answered)


def take(choose: random.Random, url: str) -> None:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = subscribed(client)
    while not ended.is_set():
        found = consumer.batch_receive()
        numbers = [int(message.data()) for message in found]
        if not numbers:
            continue
        counts = [message.redelivery_count() + 1 for message in found]
        say("g", [f"{number}:{count}" for number, count in zip(numbers, counts, strict=True)])
        kinds = [
            drawn(choose, number, count, may_reject=False) if is_single(number) else "a"
            for number, count in zip(numbers, counts, strict=True)
        ]
        for letter in ("a", "r"):
            said = [number for number, kind in zip(numbers, kinds, strict=True) if kind == letter]
            if said:
                say(letter, said)
        for message, kind in zip(found, kinds, strict=True):
            if kind == "a":
                consumer.acknowledge(message)
            else:
                consumer.negative_acknowledge(message)
    client.close()


def subscribed(client: pulsar.Client) -> Any:
    while True:
        try:
            return client.subscribe(
                TOPIC,
                GROUP,
                consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
                receiver_queue_size=PLACES,
                negative_ack_redelivery_delay_ms=100,
                batch_index_ack_enabled=True,
                batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(PLACES, -1, 100),
            )
        except pulsar.PulsarException:
            time.sleep(RETRY_S)  # until the server is back


def _listen() -> None:
    sys.stdin.read()
    ended.set()


def main() -> int:
    kind, seed, address = sys.argv[1:]
    threading.Thread(target=_listen, daemon=True).start()
    kinds: dict[str, Callable[[random.Random, str], None]] = {"sharer": share, "taker": take}
    kinds[kind](random.Random(int(seed)), address)
    os._exit(0)  # threads of a client may wait for a server


if __name__ == "__main__":
    raise SystemExit(main())
