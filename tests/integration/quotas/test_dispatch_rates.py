"""Dispatch rates hold back consumers of both protocols, which lose nothing; subscribe rates refuse consumers."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
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
TYPES = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared]


@pytest.fixture
def client(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    one = pulsar.Client(server.pulsar_url)
    yield one
    one.close()


@pytest.fixture
def topic(server: MagnetarProcess, topic_name: str) -> str:
    """One that is there."""
    where = f"{server.http_url}{ADMIN}/{topic_name}"
    assert ask(where, {"Content-Type": "application/json"}, method="PUT")[0] == 204
    return topic_name


def rate(server: MagnetarProcess, topic: str, kind: str, **numbers: int) -> None:
    """Set it, or, without numbers, remove it."""
    method, body = ("POST", json.dumps(numbers).encode()) if numbers else ("DELETE", None)
    where = f"{server.http_url}{ADMIN}/{topic}/{kind}"
    assert ask(where, {"Content-Type": "application/json"}, method=method, body=body)[0] == 204


def dispatch_rate(
    server: MagnetarProcess, topic: str, kind: str = "dispatchRate", messages: int = RATE
) -> None:
    rate(server, topic, kind, dispatchThrottlingRateInMsg=messages, ratePeriodInSecond=1)


def publish(client: pulsar.Client, topic: str) -> list[bytes]:
    """What was published, one message in each entry."""
    producer = client.create_producer(topic, batching_enabled=False)
    contents = [b"%d" % number for number in range(COUNT)]
    for content in contents:
        producer.send_async(content, None, partition_key=content.decode())
    producer.flush()
    producer.close()
    return contents


def taken(consumer: pulsar.Consumer, began_s: float, limit: int = RATE) -> list[bytes]:
    """All of it; at no time was it more than may have come."""
    found: list[bytes] = []
    for _ in range(COUNT):
        message = consumer.receive(20_000)
        consumer.acknowledge(message)
        found.append(message.data())
        assert len(found) <= limit * (time.monotonic() - began_s + 1) + 2
    return found


@pytest.mark.parametrize("kind", ["dispatchRate", "subscriptionDispatchRate"])
@pytest.mark.parametrize("type_", TYPES, ids=lambda one: str(one.name))
def test_a_pulsar_consumer(
    server: MagnetarProcess, client: pulsar.Client, topic: str, type_: pulsar.ConsumerType, kind: str
) -> None:
    contents = publish(client, topic)
    began_s = time.monotonic()
    dispatch_rate(server, topic, kind)
    earliest = pulsar.InitialPosition.Earliest
    consumer = client.subscribe(topic, "s", type_, initial_position=earliest)
    assert taken(consumer, began_s) == contents
    assert time.monotonic() - began_s > (COUNT - RATE - 2) / RATE


def test_subscriptions_share_a_topics_rate(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    contents = publish(client, topic)
    began_s = time.monotonic()
    dispatch_rate(server, topic, messages=2 * RATE)
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for _ in range(2)]
    found: list[list[bytes]] = [[], []]
    for _ in range(COUNT):
        for number, reader in enumerate(readers):
            found[number].append(reader.read_next(20_000).data())
            assert sum(map(len, found)) <= 2 * RATE * (time.monotonic() - began_s + 1) + 2
    assert found == [contents, contents]


def test_a_consumer_that_has_caught_up_and_a_rate_that_is_lifted(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    dispatch_rate(server, topic, messages=1)
    consumer = client.subscribe(topic, "s")
    contents = publish(client, topic)
    assert [consumer.receive(20_000).data() for _ in range(2)] == contents[:2]
    began_s = time.monotonic()
    rate(server, topic, "dispatchRate")
    assert [consumer.receive(20_000).data() for _ in range(COUNT - 2)] == contents[2:]
    assert time.monotonic() - began_s < (COUNT - 2) / 2


def test_a_kafka_consumer(server: MagnetarProcess, client: pulsar.Client, topic: str) -> None:
    contents = publish(client, topic)
    began_s = time.monotonic()
    dispatch_rate(server, topic)
    settings: dict[str, Any] = {
        "bootstrap.servers": server.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < COUNT:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found.append(message.value() or b"")
        assert len(found) <= RATE * (time.monotonic() - began_s + 1) + 2
    consumer.close()
    assert found == contents
    assert time.monotonic() - began_s > (COUNT - RATE - 2) / RATE


def test_clients_of_both_protocols_share_a_topics_rate(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    contents = publish(client, topic)
    began_s = time.monotonic()
    dispatch_rate(server, topic, messages=2 * RATE)
    settings: dict[str, Any] = {"bootstrap.servers": server.bootstrap, "group.id": topic}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    by_kafka: list[bytes] = []
    by_pulsar: list[bytes] = []
    while len(by_kafka) < COUNT or len(by_pulsar) < COUNT:
        if (message := consumer.poll(0.01)) is not None:
            assert message.error() is None
            by_kafka.append(message.value() or b"")
        with suppress(pulsar.Timeout):
            by_pulsar.append(reader.read_next(10).data())
        passed_s = time.monotonic() - began_s
        # Both may read at the same moment, and get what is left then: it is paid for afterwards.
        assert len(by_kafka) + len(by_pulsar) <= 2 * RATE * (passed_s + 2) + 2
        assert passed_s < 60, (len(by_kafka), len(by_pulsar))
    consumer.close()
    assert by_kafka == by_pulsar == contents


def test_a_consumer_that_subscribes_too_often(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    rate(server, topic, "subscribeRate", subscribeThrottlingRatePerConsumer=1, ratePeriodInSecond=3600)
    # Each consumer of a client has another number: what comes twice is the first one of two clients.
    client.subscribe(topic, "s", consumer_name="c").close()
    second = pulsar.Client(server.pulsar_url)
    with pytest.raises(pulsar.PulsarException, match="NotAllowed"):
        second.subscribe(topic, "s", consumer_name="c")
    rate(server, topic, "subscribeRate")
    second.subscribe(topic, "s", consumer_name="c")
    second.close()


def test_a_kafka_consumer_that_does_not_wait_has_its_share_beside_others(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    publish(client, topic)
    dispatch_rate(server, topic)
    earliest = pulsar.InitialPosition.Earliest
    others = [
        client.subscribe(topic, name, initial_position=earliest, receiver_queue_size=COUNT) for name in "ab"
    ]
    left = [COUNT, COUNT]
    restless = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "restless", "fetch.wait.max.ms": 0}
    )
    beside = 0
    while all(left):
        for number, other in enumerate(others):
            with suppress(pulsar.Timeout):
                other.receive(50)
                left[number] -= 1
        if not restless.assignment() and sum(left) < 2 * COUNT - RATE:  # what may come at once has gone
            restless.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        message = restless.poll(0.02)
        beside += message is not None and message.error() is None
    restless.close()
    assert beside >= 5
