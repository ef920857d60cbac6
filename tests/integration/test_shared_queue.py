"""Kafka's share consumers and Pulsar's Shared consumers drain one queue together."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from magnetar.testing.server import MagnetarProcess

pytestmark = [pytest.mark.clients, pytest.mark.slow]

MESSAGES = 6_000
GROUP = "queue"
RESET = "share.auto.offset.reset"


class Tally:
    """What was accepted, by whom; consumers go on until it is everything."""

    def __init__(self, in_batches: bool) -> None:
        self.in_batches = in_batches
        self.accepted: Counter[bytes] = Counter()
        self.by: Counter[str] = Counter()
        self._lock = threading.Lock()

    def accept(self, name: str, value: bytes) -> None:
        with self._lock:
            self.accepted[value] += 1
            self.by[name] += 1

    @property
    def is_complete(self) -> bool:
        with self._lock:
            return len(self.accepted) == MESSAGES


def sharer(bootstrap: str) -> confluent_kafka.ShareConsumer:
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 30,
        }
    )
    consumer.subscribe(["q"])
    return consumer


def kafka_consumer(bootstrap: str, name: str, tally: Tally, ends: float) -> None:
    dice = random.Random(name)
    consumer = sharer(bootstrap)
    while not tally.is_complete and time.monotonic() < ends:
        for message in consumer.poll(timeout=0.5) or []:
            value = message.value()
            assert message.error() is None, message.error()
            assert value is not None
            if dice.random() < 0.2 and (message.delivery_count() or 0) < 3:
                consumer.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
            else:
                consumer.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
                tally.accept(name, value)
        consumer.commit_sync()
    consumer.close()


def pulsar_consumer(url: str, name: str, tally: Tally, ends: float) -> None:
    dice = random.Random(name)
    # Of a batch the client gives all messages back when one is given back, accepted ones as well.
    returned = 0.0 if tally.in_batches else 0.2
    client = pulsar.Client(url)
    consumer = client.subscribe(
        "q",
        GROUP,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=20,
        negative_ack_redelivery_delay_ms=100,
    )
    while not tally.is_complete and time.monotonic() < ends:
        try:
            message = consumer.receive(500)
        except pulsar.Timeout:
            continue
        if dice.random() < returned and message.redelivery_count() < 2:
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
            tally.accept(name, message.data())
    client.close()


def set_up(server: MagnetarProcess, count: int, batch: int) -> None:
    """A topic of two partitions with so many messages, and a group that begins at its start."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for future in admin.create_topics([NewTopic("q", 2, 1)]).values():
        future.result(30)
    entry = ConfigEntry(RESET, "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.GROUP, GROUP, incremental_configs=[entry])
    for change in admin.incremental_alter_configs([resource]).values():
        change.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "batch.num.messages": batch})
    for number in range(count):
        producer.produce("q", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("in_batches", [False, True])
def test_each_message_is_accepted_once_by_a_consumer_of_either_protocol(in_batches: bool) -> None:
    with MagnetarProcess() as server:
        set_up(server, MESSAGES, 50 if in_batches else 1)
        tally = Tally(in_batches)
        ends = time.monotonic() + 60
        roles: list[tuple[Callable[[str, str, Tally, float], None], str]] = [
            (kafka_consumer, server.bootstrap),
            (pulsar_consumer, server.pulsar_url),
        ]
        threads = [
            threading.Thread(target=consume, args=(where, f"{consume.__name__}-{number}", tally, ends))
            for number in range(3)
            for consume, where in roles
        ]
        for thread in threads[::2]:
            thread.start()
        while (
            not tally.by and time.monotonic() < ends
        ):  # a new share group gives its partitions out a second later
            time.sleep(0.01)
        for thread in threads[1::2]:
            thread.start()
        for thread in threads:
            thread.join()
        repeated = {value: count for value, count in tally.accepted.items() if count > 1}
        assert (len(tally.accepted), repeated) == (MESSAGES, {}), tally.by
        for kind in ("kafka_consumer", "pulsar_consumer"):
            assert sum(count for name, count in tally.by.items() if name.startswith(kind)), tally.by


def finished(consumer: confluent_kafka.ShareConsumer, wanted: int) -> set[bytes]:
    """So many values at least, each of which was accepted or rejected, durably."""
    dice = random.Random(wanted)
    seen: set[bytes] = set()
    ends = time.monotonic() + 30
    while len(seen) < wanted and time.monotonic() < ends:
        for message in consumer.poll(timeout=0.5) or []:
            value = message.value()
            assert value is not None
            assert value not in seen
            seen.add(value)
            kinds = confluent_kafka.AcknowledgeType
            consumer.acknowledge(message, dice.choice([kinds.ACCEPT, kinds.REJECT]))
        consumer.commit_sync()
    return seen


@pytest.mark.timeout(120)
def test_what_was_acknowledged_is_not_delivered_again_after_a_kill() -> None:
    count = 200
    with MagnetarProcess() as server:
        set_up(server, count, 7)
        before = sharer(server.bootstrap)
        first = finished(before, count // 3)
        server.kill()
        server.restart()
        before.close()
        after = sharer(server.bootstrap)
        rest = finished(after, count - len(first))
        after.close()
        assert count // 3 <= len(first) < count
        assert not first & rest
        assert len(first | rest) == count


def release(server: MagnetarProcess, releases: Counter[bytes], least: int) -> None:
    """Release each of these records until that was done so often, and kill the server behind the last answer."""
    consumer = sharer(server.bootstrap)
    ends = time.monotonic() + 60
    while min(releases.values()) < least:
        assert time.monotonic() < ends, releases
        for message in consumer.poll(timeout=0.5) or []:
            value = message.value()
            assert value is not None
            assert message.delivery_count() == releases[value] + 1
            consumer.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
            releases[value] += 1
        assert not [error for error in (consumer.commit_sync() or {}).values() if error is not None]
    server.kill()
    consumer.close()
    server.restart()


@pytest.mark.timeout(300)
def test_delivery_counts_and_their_limit_hold_over_kills() -> None:
    count, limit = 20, 5
    with MagnetarProcess() as server:
        set_up(server, count, 1)
        releases = Counter({b"%d" % number: 0 for number in range(count)})
        for least in range(1, limit + 1):
            release(server, releases, least)
            if least == 2:
                client = pulsar.Client(server.pulsar_url)
                consumer = client.subscribe("q", GROUP, consumer_type=pulsar.ConsumerType.Shared)
                left = {value: times for value, times in releases.items() if times < limit}
                found = [consumer.receive(30_000) for _ in left]
                assert {message.data(): message.redelivery_count() for message in found} == left
                client.close()
        assert set(releases.values()) == {limit}
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        producer.produce("q", b"more", partition=0)
        assert producer.flush(30) == 0
        last = sharer(server.bootstrap)
        assert finished(last, 1) == {b"more"}  # the others are given up
        last.close()
