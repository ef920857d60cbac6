"""Producers without end: few are remembered, and a real client whose state was forgotten goes on."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest

from .wire import Wire, eventually, record_batch

PRODUCERS_MAX = 5


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    limits = {
        "max.concurrent.producer.ids": str(PRODUCERS_MAX),
        "max.transactions.per.coordinator": str(PRODUCERS_MAX),
    }
    with MagnetarProcess(settings=limits) as running:
        yield running


def remembered(wire: Wire, topic: str) -> set[int]:
    answer = wire.ask("describe_producers", 0, DescribeProducersRequest([TopicRequest(topic, [0])]))
    return {one.producer_id for one in answer.topics[0].partitions[0].active_producers}


def flood(wire: Wire, topic: str) -> None:
    for producer_id in range(1 << 40, (1 << 40) + 50):
        assert wire.produce(topic, record_batch([b"x"], producer=(producer_id, 0, 0))).error_code == 0


def test_an_idempotent_client_that_was_forgotten_goes_on_where_it_was(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    errors: list[object] = []
    client = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "error_cb": errors.append,
            "linger.ms": 0,
        }
    )

    def send(number: int) -> None:
        delivered: list[object] = []
        client.produce(topic, str(number), on_delivery=lambda error, _: delivered.append(error))
        client.flush(30)
        assert delivered == [None]

    for number in range(3):
        send(number)
    (mine,) = remembered(wire, topic)
    flood(wire, topic)
    eventually(lambda: mine not in remembered(wire, topic), "it is not forgotten")
    eventually(lambda: len(remembered(wire, topic)) <= PRODUCERS_MAX, "more are remembered")
    for number in range(3, 6):
        send(number)
    assert mine in remembered(wire, topic)
    assert not errors
    assert wire.offset_of(topic, -1) == (0, 6 + 50)


def test_the_limit_holds_over_a_kill(server: MagnetarProcess, topic: str) -> None:
    with Wire(server.ports[0]) as wire:
        flood(wire, topic)
    server.kill()
    server.restart()
    with Wire(server.ports[0]) as wire:
        eventually(lambda: len(remembered(wire, topic)) <= PRODUCERS_MAX, "more are remembered")
        # The last of them is: what it repeats is not stored again.
        last = (1 << 40) + 49
        assert wire.produce(topic, record_batch([b"x"], producer=(last, 0, 0))).base_offset == 49


def test_transactional_ids_without_end_get_their_producers(server: MagnetarProcess) -> None:
    with Wire(server.ports[0]) as wire:
        for number in range(4 * PRODUCERS_MAX):
            answer = wire.ask("init_producer_id", 4, InitProducerIdRequest(f"id-{number}", 60_000, -1, -1))
            assert answer.error_code == 0
