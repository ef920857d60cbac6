"""Topics and what is in them, by clients that we did not write."""

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess

TIMEOUT_S = 30.0


def make_topic(server: MagnetarProcess, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, config=settings)])[name].result(TIMEOUT_S)


def produce(
    server: MagnetarProcess, topic: str, count: int, size: int = 1000, partition: int = 0, **config: Any
) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 2, **config})
    for number in range(count):
        producer.produce(topic, f"{number}:".encode().ljust(size, b"k"), partition=partition)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def consumed(server: MagnetarProcess, topic: str, end: int) -> dict[int, bytes | None]:
    """The values of partition 0 below `end`, by offset."""
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "oracle", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, bytes | None] = {}
    while max(found, default=-1) < end - 1:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"nothing more after {len(found)} of {end}"
        assert message.error() is None, message.error()
        offset = message.offset()
        assert offset is not None
        found[offset] = message.value()
    consumer.close()
    return {offset: value for offset, value in found.items() if offset < end}
