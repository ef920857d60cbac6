"""Clients that we did not write lose nothing over several sessions, on one connection where they know how to."""

import asyncio
import re
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess

from .guarded import Guarded

pytestmark = pytest.mark.clients
SESSION_S = 3.0  # kafka-python logs in anew a tenth of it before its end, which a busy machine may take
WORK_S = 2.5 * SESSION_S


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    one.settings["listener.name.sasl_plaintext.plain.connections.max.reauth.ms"] = str(int(SESSION_S * 1000))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


def sessions_lost(guarded: Guarded) -> float:
    page = urllib.request.urlopen(f"{guarded.server.http_url}/metrics", timeout=20).read().decode()
    (value,) = re.findall(r"^magnetar_kafka_logins_failed_total (\S+)$", page, re.MULTILINE)
    return float(value)


def test_librdkafka(guarded: Guarded, topic: str) -> None:
    lost = sessions_lost(guarded)
    failures: list[Any] = []
    told: dict[str, Any] = {**guarded.confluent("alice", "alice-secret"), "error_cb": failures.append}
    producer = confluent_kafka.Producer(told)
    consumer = confluent_kafka.Consumer({**told, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    sent = got = 0
    until = time.monotonic() + WORK_S
    while time.monotonic() < until or got < sent:
        if time.monotonic() < until:
            producer.produce(topic, b"value")
            assert producer.flush(20) == 0
            sent += 1
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            got += 1
        assert time.monotonic() < until + 20
    consumer.close()
    assert sent == got
    assert not failures
    assert sessions_lost(guarded) == lost


def test_kafka_python(guarded: Guarded, topic: str) -> None:
    lost = sessions_lost(guarded)
    producer = KafkaProducer(**guarded.python("alice", "alice-secret"))
    until = time.monotonic() + WORK_S
    while time.monotonic() < until:
        producer.send(topic, b"value").get(20)
    producer.close()
    assert sessions_lost(guarded) == lost


def test_aiokafka_which_connects_again(guarded: Guarded, topic: str) -> None:
    lost = sessions_lost(guarded)

    async def scenario() -> None:
        async with AIOKafkaProducer(**guarded.python("alice", "alice-secret")) as producer:
            until = time.monotonic() + WORK_S
            while time.monotonic() < until:
                await producer.send_and_wait(topic, b"value")

    asyncio.run(scenario())
    assert sessions_lost(guarded) > lost
