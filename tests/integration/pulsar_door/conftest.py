"""One Pulsar client per module."""

from collections.abc import Callable, Iterator

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess

from .clients import new_client


@pytest.fixture(scope="module")
def client(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    client = new_client(server.pulsar_url)
    yield client
    client.close()


@pytest.fixture
def fill(client: pulsar.Client) -> Callable[..., list[pulsar.MessageId]]:
    """`fill(topic, 10)` sends b"0" to b"9" and returns their ids; options are those of `create_producer`."""

    def send(topic: str, count: int, first: int = 0, **options: object) -> list[pulsar.MessageId]:
        ids: list[pulsar.MessageId] = []
        producer = client.create_producer(topic, **options)
        for number in range(first, first + count):
            producer.send_async(b"%d" % number, lambda _, message_id: ids.append(message_id))
        producer.flush()
        producer.close()
        return ids

    return send
