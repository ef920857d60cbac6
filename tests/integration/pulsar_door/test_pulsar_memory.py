"""What the broker remembers of producers, asked by a real client, and after a kill."""

import json
import urllib.request
from collections.abc import Iterator

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess

from .clients import new_client

MIB = 1 << 20
NO_POSITION = (-1, -1)


@pytest.fixture
def deduplicating() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as server:
        request = urllib.request.Request(
            f"{server.http_url}/admin/v2/namespaces/public/default/deduplication",
            json.dumps(True).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 204
        yield server
        assert "Traceback" not in server.log, server.log[-5000:]


def everything(client: pulsar.Client, topic: str) -> list[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(10_000).data())
    reader.close()
    return found


def ids_of(*ids: pulsar.MessageId) -> list[tuple[int, int]]:
    return [(one.ledger_id(), one.entry_id()) for one in ids]


def test_what_a_producer_sends_again_is_stored_once_also_after_a_kill(
    deduplicating: MagnetarProcess, topic: str
) -> None:
    server = deduplicating
    large = bytes(range(256)) * (6 * MIB // 256)
    client = new_client(server.pulsar_url)
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == -1
    for number in range(10):
        producer.send(b"%d" % number, sequence_id=number)
    producer.close()
    again = client.create_producer(topic, producer_name="p", chunking_enabled=True, batching_enabled=False)
    assert again.last_sequence_id() == 9
    repeated = [again.send(b"again", sequence_id=number) for number in range(5, 10)]
    assert set(ids_of(*repeated)) == {NO_POSITION}
    again.send(large, sequence_id=10)
    again.send(large, sequence_id=10)
    again.close()
    server.kill()
    client.close()

    server.start()
    client = new_client(server.pulsar_url)
    producer = client.create_producer(
        topic, producer_name="p", batching_enabled=True, batching_max_publish_delay_ms=50
    )
    assert producer.last_sequence_id() == 10
    sent: list[pulsar.MessageId] = []
    for number in (9, 10):
        producer.send_async(b"again", lambda _, message_id: sent.append(message_id), sequence_id=number)
    producer.flush()
    for number in (11, 12, 13):
        producer.send_async(b"%d" % number, lambda _, message_id: sent.append(message_id), sequence_id=number)
    producer.flush()
    assert ids_of(*sent[:2]) == [NO_POSITION] * 2
    assert everything(client, topic) == [b"%d" % number for number in range(10)] + [
        large,
        b"11",
        b"12",
        b"13",
    ]
    client.close()


def test_an_exclusive_producer_outlives_a_kill_and_a_fenced_one_does_not_come_back(
    deduplicating: MagnetarProcess, topic: str
) -> None:
    server = deduplicating
    first_client, second_client = new_client(server.pulsar_url), new_client(server.pulsar_url)
    first = first_client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    first.send(b"first")
    server.kill()
    server.start()
    first.send(b"first again")  # its client has reconnected under the epoch that it got
    with pytest.raises(pulsar.ProducerFenced):
        second_client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    second = second_client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
    second.send(b"second")
    server.kill()
    server.start()
    second.send(b"second again")
    with pytest.raises(pulsar.PulsarException):
        first.send(b"too late")
    assert everything(second_client, topic) == [b"first", b"first again", b"second", b"second again"]
    first_client.close()
    second_client.close()
