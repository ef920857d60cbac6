"""Messages for functions, and how long their outputs take: pulsar-client's Python classes in this process."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pulsar

from bench.process import RunFailed
from bench.pulsar_client import Addresses

SUBSCRIPTION = "bench"
OUTPUT_SECONDS_MAX = 60.0
PENDING_MAX = 10_000


@contextmanager
def client_of(where: Addresses) -> Iterator[pulsar.Client]:
    client = pulsar.Client(where.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        yield client
    finally:
        client.close()


def fill(where: Addresses, topic: str, *, size: int, count: int) -> None:
    """Send `count` messages of `size` bytes, in batches.  RunFailed when one is not stored."""
    failed: list[pulsar.Result] = []

    def sent(result: pulsar.Result, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    with client_of(where) as client:
        producer = client.create_producer(
            topic, batching_enabled=True, block_if_queue_full=True, max_pending_messages=PENDING_MAX
        )
        value = b"x" * size
        for _ in range(count):
            producer.send_async(value, sent)
        producer.flush()
    if failed:
        raise RunFailed(f"{len(failed)} messages were not sent: {failed[0]}")


def make(where: Addresses, *topics: str) -> None:
    """Have the server create these topics, which have no partitions."""
    with client_of(where) as client:
        for topic in topics:
            client.create_producer(topic).close()


def delays(
    where: Addresses, source: str, target: str, *, size: int, rate: int, warm_up_seconds: int, seconds: int
) -> list[float]:
    """Send `rate` messages a second, each by itself; returns how many ms each output took to come back, in order.

    Those of the first `warm_up_seconds` are left out.  RunFailed when an output does not come.
    """
    count = rate * (warm_up_seconds + seconds)
    sent = [0.0] * count
    found: list[float] = []
    with client_of(where) as client:
        outputs = client.subscribe(target, SUBSCRIPTION)
        producer = client.create_producer(source, block_if_queue_full=True)
        sender = threading.Thread(target=_send, args=(producer, sent, size, rate), daemon=True)
        sender.start()
        for number in range(count):
            try:
                message = outputs.receive(int(OUTPUT_SECONDS_MAX * 1000))
            except pulsar.Timeout:
                raise RunFailed(f"{number} of {count} outputs have come, and no more") from None
            found.append((time.monotonic() - sent[int(message.data()[:_NUMBER_BYTES])]) * 1000)
            outputs.acknowledge(message)
        sender.join()
    return found[rate * warm_up_seconds :]


_NUMBER_BYTES = 10


def _send(producer: pulsar.Producer, sent: list[float], size: int, rate: int) -> None:
    begin = time.monotonic()
    rest = b"x" * (size - _NUMBER_BYTES)
    for number in range(len(sent)):
        due = begin + number / rate
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        sent[number] = time.monotonic()
        producer.send_async(b"%0*d" % (_NUMBER_BYTES, number) + rest, None)
    producer.flush()
