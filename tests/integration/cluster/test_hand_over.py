"""Bundles move between brokers while clients that we did not write use them: nothing is lost or comes twice."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import httpx
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from .brokers import HOST, Served, brokers_in, hand_over, until

pytestmark = pytest.mark.clients

TOPIC: Final = "orders"
PARTITIONS: Final = 4
EVENTS: Final = "persistent://public/default/events"
HAND_OVERS: Final = 4
BETWEEN: Final = 100  # messages of each protocol between two hand-overs
TIMEOUT_S: Final = 60.0


class KafkaClients:
    """A producer and a consumer of Kafka's protocol, each in a thread of its own."""

    def __init__(self, brokers: list[Served]) -> None:
        self._bootstrap = ",".join(f"{HOST}:{one.kafka_port}" for one in brokers)
        self._ends = threading.Event()
        self.delivered: dict[int, list[tuple[int, int]]] = {index: [] for index in range(PARTITIONS)}
        self.delivered_count = 0
        self.errors: list[Any] = []

    def make_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)

    def stop(self) -> None:
        self._ends.set()

    def produce(self) -> int:
        """Send numbers until `stop`; returns how many."""
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        number = 0
        while not self._ends.is_set():
            producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            number += 1
            producer.poll(0.001)
        assert producer.flush(TIMEOUT_S) == 0
        return number

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.delivered[message.partition()].append((message.offset(), int(message.value())))
            self.delivered_count += 1

    def consume(self, count: Callable[[], int | None]) -> dict[int, list[tuple[int, int]]]:
        """(offset, number) of all records, by partition, as soon as there are as many as `count` says."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        found: dict[Any, list[tuple[Any, int]]] = {index: [] for index in range(PARTITIONS)}
        try:
            consumer.assign([confluent_kafka.TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
            while sum(map(len, found.values())) != count():
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    found[message.partition()].append((message.offset(), int(message.value() or b"")))
        finally:
            consumer.close()
        return found


class PulsarClients:
    """A producer, a consumer and a reader of Pulsar's protocol, each in a thread of its own."""

    def __init__(self, brokers: list[Served]) -> None:
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        self._client = pulsar.Client(
            f"pulsar://{HOST}:{brokers[0].pulsar_port}", operation_timeout_seconds=30, logger=silent
        )
        self._ends = threading.Event()
        self.sent_count = 0

    def stop(self) -> None:
        self._ends.set()

    def close(self) -> None:
        self._client.close()

    def produce(self) -> int:
        """Send numbers until `stop`, each when the one before is stored; returns how many."""
        producer = self._client.create_producer(EVENTS, send_timeout_millis=0, batching_enabled=False)
        while not self._ends.is_set():
            producer.send(b"%d" % self.sent_count)
            self.sent_count += 1
        producer.close()
        return self.sent_count

    def subscribe(self) -> pulsar.Consumer:
        return self._client.subscribe(EVENTS, "s", initial_position=pulsar.InitialPosition.Earliest)

    def consume(self, consumer: pulsar.Consumer, count: Callable[[], int | None]) -> set[int]:
        """The numbers of messages, each acknowledged, as soon as there are as many as `count` says.

        The client sends acknowledgements a tenth of a second late, and forgets them when its consumer is closed: so
        some messages come again, as from a real Pulsar.
        """
        found: set[int] = set()
        while len(found) != count():
            with suppress(pulsar.Timeout):
                message = consumer.receive(timeout_millis=100)
                found.add(int(message.data()))
                consumer.acknowledge(message)
        consumer.close()
        return found

    def read(self, count: Callable[[], int | None]) -> list[int]:
        """The numbers of all messages, by a reader, as soon as there are as many as `count` says."""
        reader = self._client.create_reader(EVENTS, pulsar.MessageId.earliest)
        found: list[int] = []
        while len(found) != count():
            with suppress(pulsar.Timeout):
                found.append(int(reader.read_next(timeout_millis=100).data()))
        assert not reader.has_message_available()
        reader.close()
        return found


async def moved(brokers: list[Served], kafka: KafkaClients, events: PulsarClients) -> None:
    """Hand over bundles of both topics, one after the other, each time after some more messages."""
    names = [f"persistent://public/default/{TOPIC}-partition-{index}" for index in range(PARTITIONS)]
    for turn in range(HAND_OVERS):
        for name in (names[turn % PARTITIONS], EVENTS):
            sent, delivered = events.sent_count, kafka.delivered_count
            await until(
                lambda sent=sent, delivered=delivered: (
                    events.sent_count >= sent + BETWEEN  # type: ignore[misc]
                    and kafka.delivered_count >= delivered + BETWEEN
                )
            )
            await hand_over(brokers, name)


async def used(brokers: list[Served]) -> None:
    kafka, events = KafkaClients(brokers), PulsarClients(brokers)
    await asyncio.to_thread(kafka.make_topic)
    totals: dict[str, int] = {}
    consumer = await asyncio.to_thread(events.subscribe)
    producing = asyncio.gather(asyncio.to_thread(kafka.produce), asyncio.to_thread(events.produce))
    consuming = asyncio.gather(
        asyncio.to_thread(kafka.consume, lambda: totals.get("kafka")),
        asyncio.to_thread(events.consume, consumer, lambda: totals.get("pulsar")),
        asyncio.to_thread(events.read, lambda: totals.get("pulsar")),
    )
    try:
        await moved(brokers, kafka, events)
    finally:
        kafka.stop()
        events.stop()
    totals["kafka"], totals["pulsar"] = await producing
    records, consumed, read = await consuming
    assert not kafka.errors
    for index, found in records.items():
        numbers = list(range(index, totals["kafka"], PARTITIONS))
        assert found == list(enumerate(numbers)), "each record once, in its order"
        assert sorted(kafka.delivered[index]) == found, "where its producer heard that it is"
    assert read == list(range(totals["pulsar"])), "each message once, in its order"
    assert consumed == set(read)
    await asyncio.to_thread(events.close)


def test_clients_of_both_protocols_lose_nothing_and_get_nothing_twice(tmp_path: Path) -> None:
    async def whole() -> None:
        async with brokers_in(tmp_path, 3) as brokers:
            await used(brokers)

    asyncio.run(whole())


def test_look_ups_over_http_lead_pulsars_clients_to_the_owner(tmp_path: Path) -> None:
    def send_and_count(port: int) -> int:
        client = pulsar.Client(f"http://{HOST}:{port}", operation_timeout_seconds=30)
        producer = client.create_producer(EVENTS)
        producer.send(b"x")
        client.close()
        answer = httpx.get(f"http://{HOST}:{port}/lookup/v2/topic/persistent/public/default/events")
        url = answer.json()["brokerUrl"]
        return int(url.rpartition(":")[2])

    async def whole() -> None:
        async with brokers_in(tmp_path, 2) as brokers:
            for one in brokers:
                owner = next(one for one in brokers if one.name == brokers[0].record(EVENTS).owner)
                assert await asyncio.to_thread(send_and_count, one.http_port) == owner.pulsar_port
                await hand_over(brokers, EVENTS)

    asyncio.run(whole())
