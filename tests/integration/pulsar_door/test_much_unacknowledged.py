"""pulsar-client's consumers with very many messages that they have not acknowledged."""

from collections.abc import Iterator

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from magnetar.base.settings_table import ENTRY_CACHE_BYTES_MIN
from magnetar.broker.subscriptions.remembered import ROW_BYTES, ROWS_EACH
from magnetar.testing.server import MagnetarProcess

from .clients import new_client
from .consuming import WAIT_MS, nothing_comes, numbers

ROOM = ENTRY_CACHE_BYTES_MIN // ROW_BYTES  # of the server: rows for all subscriptions
COUNT = 3000
KINDS = pytest.mark.parametrize(
    "kind", [ConsumerType.Shared, ConsumerType.KeyShared], ids=lambda kind: kind.name
)


@pytest.fixture(scope="module")
def small() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"entry.cache.bytes": f"{ENTRY_CACHE_BYTES_MIN}"}) as server:
        yield server
        assert "Traceback" not in server.log, server.log[-5000:]


def consumer_of(client: pulsar.Client, topic: str, name: str, kind: ConsumerType) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        name,
        consumer_type=kind,
        initial_position=InitialPosition.Earliest,
        receiver_queue_size=2 * COUNT,
    )


def send(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for number in range(COUNT):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"{number % 100}")
    producer.flush()
    producer.close()


@KINDS
def test_consumers_that_acknowledge_nothing_leave_others_what_they_need(
    small: MagnetarProcess, topic: str, kind: ConsumerType
) -> None:
    client = new_client(small.pulsar_url)
    send(client, topic)
    silent = consumer_of(client, topic, "silent-0", kind)
    for _ in range(ROOM // 2 - 100):
        silent.receive(WAIT_MS)
    others = [consumer_of(client, topic, f"silent-{number}", kind) for number in (1, 2)]
    for one in others:
        for _ in range(ROWS_EACH):
            one.receive(WAIT_MS)
        assert nothing_comes(one)
    client_of_all = consumer_of(client, topic, "s", kind)
    found: list[bytes] = []
    while len(found) < COUNT:
        message = client_of_all.receive(WAIT_MS)
        found.append(message.data())
        client_of_all.acknowledge(message)
    assert sorted(found, key=int) == numbers(0, COUNT)
    assert nothing_comes(client_of_all)
    client.close()


@KINDS
def test_what_one_consumer_had_comes_to_another_one_when_it_leaves(
    server: MagnetarProcess, topic: str, kind: ConsumerType
) -> None:
    client = new_client(server.pulsar_url)
    send(client, topic)
    leaver = consumer_of(client, topic, "s", kind)
    for _ in range(COUNT):
        leaver.receive(WAIT_MS)
    leaver.redeliver_unacknowledged_messages()
    again = [leaver.receive(WAIT_MS) for _ in range(COUNT)]
    assert [message.data() for message in again] == numbers(0, COUNT)
    assert {message.redelivery_count() for message in again} == {1}
    other = consumer_of(client, topic, "s", kind)
    leaver.close()
    found = [other.receive(WAIT_MS).data() for _ in range(COUNT)]
    assert sorted(found, key=int) == numbers(0, COUNT)
    assert nothing_comes(other)
    client.close()
