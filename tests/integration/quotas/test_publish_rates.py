"""A topic's publish rate holds back clients of both protocols, which lose nothing."""

import json
import time
from typing import Any

import confluent_kafka
import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask

pytestmark = pytest.mark.clients
RATE = 20
COUNT = 40  # of which a second's worth comes at once
ADMIN = "/admin/v2/persistent/public/default"


@pytest.fixture
def topic(server: MagnetarProcess, topic_name: str) -> str:
    """One with a rate."""
    headers = {"Content-Type": "application/json"}
    rate = json.dumps({"publishThrottlingRateInMsg": RATE, "publishThrottlingRateInByte": -1}).encode()
    assert ask(f"{server.http_url}{ADMIN}/{topic_name}", headers, method="PUT")[0] == 204
    where = f"{server.http_url}{ADMIN}/{topic_name}/publishRate"
    assert ask(where, headers, method="POST", body=rate)[0] == 204
    return topic_name


def test_pulsar_producer(server: MagnetarProcess, topic: str) -> None:
    client = pulsar.Client(server.pulsar_url)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    producer = client.create_producer(topic)
    began_s = time.monotonic()
    for number in range(COUNT):
        producer.send(str(number).encode())
    assert time.monotonic() - began_s > (COUNT - RATE - 2) / RATE
    assert [reader.read_next(10_000).data() for _ in range(COUNT)] == [
        str(number).encode() for number in range(COUNT)
    ]
    client.close()


def test_kafka_producer(server: MagnetarProcess, topic: str) -> None:
    throttled_s: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": server.bootstrap,
        "linger.ms": 100,  # all in one batch: on a slow machine, single ones would not exceed the rate
        "throttle_cb": lambda event: throttled_s.append(event.throttle_time),
    }
    producer = confluent_kafka.Producer(settings)
    began_s = time.monotonic()
    for number in range(COUNT):
        producer.produce(topic, str(number).encode())
    assert producer.flush(20) == 0
    producer.produce(topic, b"held back")
    assert producer.flush(20) == 0
    assert time.monotonic() - began_s > (COUNT - RATE - 2) / RATE
    assert any(throttled_s)
