"""What Kafka's consumers see of a topic."""

import itertools
import time

import confluent_kafka

from magnetar.testing.server import MagnetarProcess

_numbers = itertools.count()


def read_to_the_end(server: MagnetarProcess, topic: str, isolation: str = "read_committed") -> list[str]:
    """The values from the start on, as far as a consumer of this isolation level gets."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": f"{topic}-{next(_numbers)}",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.value() or b"").decode().strip())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"no end, after {found}")
