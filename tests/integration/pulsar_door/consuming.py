"""What tests of pulsar-client's consumers do again and again."""

import time
from collections.abc import Callable

import pulsar
import pytest
from pulsar import ConsumerType, MessageId

Fill = Callable[..., list[MessageId]]
ALL_TYPES = (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared)
WAIT_MS = 10_000
NOTHING_MS = 300


def take(consumer: pulsar.Consumer, count: int, acknowledge: bool = True) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        found.append(message.data())
        if acknowledge:
            consumer.acknowledge(message)
    return found


def nothing_comes(consumer: pulsar.Consumer) -> bool:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(NOTHING_MS)
    return True


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def a_time_between() -> int:
    """Milliseconds since the epoch, after all that was published before."""
    time.sleep(0.02)  # publish times are whole milliseconds
    return int(time.time() * 1000)
