"""Clients that we did not write are slowed down by quotas, lose nothing, and slow down no others."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.integration.server.wire import Wire

pytestmark = pytest.mark.clients
RATE = 1 << 20
VALUE = bytes(64 << 10)
COUNT = 12 * RATE // len(VALUE)  # two seconds' worth more than comes at once


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        with Wire(one.ports[0]) as wire:
            limited = EntryData(
                [EntityData("client-id", "limited")],
                [OpData("producer_byte_rate", RATE), OpData("consumer_byte_rate", RATE)],
            )
            answer = wire.ask("alter_client_quotas", 1, AlterClientQuotasRequest([limited]))
            assert [row.error_code for row in answer.entries] == [0]
        yield one
        assert "Traceback" not in one.log


class Client:
    """librdkafka under a client id; `throttled_s` is what it was told to wait."""

    def __init__(self, server: MagnetarProcess, client_id: str) -> None:
        self.throttled_s: list[float] = []
        self.settings: dict[str, Any] = {
            "bootstrap.servers": server.bootstrap,
            "client.id": client_id,
            "throttle_cb": lambda event: self.throttled_s.append(event.throttle_time),
        }

    def produce(self, topic: str) -> None:
        producer = confluent_kafka.Producer({**self.settings, "linger.ms": 5})
        failures: list[Any] = []
        for number in range(COUNT):
            producer.produce(
                topic,
                VALUE,
                str(number).encode(),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures

    def consume(self, topic: str) -> None:
        consumer = confluent_kafka.Consumer(
            {
                **self.settings,
                "group.id": f"{topic} {self.settings['client.id']}",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        keys: list[bytes | None] = []
        while len(keys) < COUNT:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            keys.append(message.key())
        consumer.close()
        assert keys == [str(number).encode() for number in range(COUNT)]


def test_limited_client_is_told_to_wait_and_gets_all(server: MagnetarProcess) -> None:
    limited = Client(server, "limited")
    limited.produce("slow")
    assert any(limited.throttled_s)
    limited.throttled_s.clear()
    limited.consume("slow")
    assert any(limited.throttled_s)


def test_another_client_is_not(server: MagnetarProcess) -> None:
    other = Client(server, "other")
    other.produce("fast")
    other.consume("fast")
    assert not any(other.throttled_s)
