"""Clients that we did not write log in, and are refused."""

import asyncio

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from tests.integration.librdkafka import refused_login

from .guarded import Guarded

pytestmark = pytest.mark.clients
WRONG = [("alice", "wrong"), ("mallory", "alice-secret")]


@pytest.mark.parametrize("tls", [False, True])
def test_librdkafka(guarded: Guarded, topic: str, tls: bool) -> None:
    settings = guarded.confluent("alice", "alice-secret", tls=tls)
    producer = confluent_kafka.Producer(settings)
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


@pytest.mark.parametrize(("user", "password"), WRONG)
def test_librdkafka_is_refused(guarded: Guarded, user: str, password: str) -> None:
    assert "Invalid username or password" in refused_login(guarded.confluent(user, password))


def test_a_client_without_a_login_gets_nothing(guarded: Guarded) -> None:
    client = AdminClient({"bootstrap.servers": f"localhost:{guarded.sasl}"})
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=3)


def test_kafka_python(guarded: Guarded, topic: str) -> None:
    settings = guarded.python("alice", "alice-secret")
    producer = KafkaProducer(**settings)
    producer.send(topic, b"value").get(30)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=30_000)
    assert next(consumer).value == b"value"
    consumer.close()


@pytest.mark.parametrize(("user", "password"), WRONG)
@pytest.mark.usefixtures("closed_socket_pairs")
def test_kafka_python_is_refused(guarded: Guarded, user: str, password: str) -> None:
    with pytest.raises(KafkaError):
        KafkaProducer(**guarded.python(user, password), bootstrap_timeout_ms=2000)


def test_aiokafka(guarded: Guarded, topic: str) -> None:
    async def scenario() -> bytes | None:
        settings = guarded.python("alice", "alice-secret")
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"value")
        async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            value: bytes | None = (await asyncio.wait_for(consumer.getone(), 30)).value
            return value

    assert asyncio.run(scenario()) == b"value"


@pytest.mark.parametrize(("user", "password"), WRONG)
def test_aiokafka_is_refused(guarded: Guarded, user: str, password: str) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(**guarded.python(user, password))
        try:
            with pytest.raises(KafkaConnectionError):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(scenario())
