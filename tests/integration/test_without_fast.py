"""A server without the extra `fast`, so without numba and numpy: both protocols read each other's messages."""

import sys
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer

from magnetar.testing.server import MagnetarProcess

pytestmark = pytest.mark.clients

TIMEOUT_S = 30.0
# What is None in sys.modules cannot be imported.
WITHOUT = """
import sys
for name in ("numba", "llvmlite", "numpy"):
    sys.modules[name] = None
from magnetar.cli.main import main
sys.exit(main())
"""
ADVICE = "pip install 'magnetar[fast]'"


def read_by_kafka(server: MagnetarProcess, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count - len(found), timeout=TIMEOUT_S)
            assert messages, f"{len(found)} of {count} messages came"
            found += [(message.key(), message.value(), message.error()) for message in messages]
    finally:
        consumer.close()
    return found


def test_both_protocols_read_each_other_in_plain_python_and_one_line_says_so() -> None:
    contents = [b"%d" % number for number in range(2000)]  # enough for the look-ups in large batches, too
    with MagnetarProcess(command=[sys.executable, "-c", WITHOUT]) as server:
        client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            producer = client.create_producer(
                "from-pulsar",
                block_if_queue_full=True,
                batching_enabled=True,
                batching_max_publish_delay_ms=50,
            )
            for content in contents:
                producer.send_async(content, None, partition_key="k")
            producer.flush()
            assert read_by_kafka(server, "from-pulsar", len(contents)) == [
                (b"k", content, None) for content in contents
            ]
            kafka = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 50})
            for content in contents:
                kafka.produce("from-kafka", content, b"k")
            assert kafka.flush(TIMEOUT_S) == 0
            consumer = client.subscribe("from-kafka", "s", initial_position=pulsar.InitialPosition.Earliest)
            received = [consumer.receive(int(TIMEOUT_S * 1000)) for _ in contents]
            assert [(one.partition_key(), one.data()) for one in received] == [
                ("k", content) for content in contents
            ]
        finally:
            client.close()
        server.terminate()
        assert server.log.count(ADVICE) == 1
        assert "Traceback" not in server.log
