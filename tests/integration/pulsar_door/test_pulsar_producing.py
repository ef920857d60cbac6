"""A real Pulsar client publishes: in batches, compressed, in chunks, pipelined, to partitions, alone or not."""

import threading
import time
import urllib.request

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess

TIMEOUT_MS = 20_000
COMPRESSION = pulsar.CompressionType


def read_all(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    consumer = client.subscribe(
        topic, "reading-all", initial_position=pulsar.InitialPosition.Earliest, max_pending_chunked_message=10
    )
    try:
        found = []
        for _ in range(count):
            message = consumer.receive(TIMEOUT_MS)
            consumer.acknowledge(message)
            found.append(message)
        return found
    finally:
        consumer.unsubscribe()
        consumer.close()


def make_partitioned(server: MagnetarProcess, topic: str, count: int) -> None:
    request = urllib.request.Request(
        f"{server.http_url}/admin/v2/persistent/public/default/{topic}/partitions",
        data=str(count).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10):
        pass


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("batched", [False, True])
def test_messages_come_back_as_they_were_sent(
    client: pulsar.Client, topic: str, compression: str, batched: bool
) -> None:
    producer = client.create_producer(
        topic,
        compression_type=getattr(COMPRESSION, compression),
        batching_enabled=batched,
        batching_max_publish_delay_ms=1000,
    )
    for number in range(20):
        producer.send_async(
            b"payload %d " % number * 50,
            None,
            properties={"number": str(number), "empty": "", "é": "ü"},
            partition_key=f"key-{number}",
            ordering_key=f"order-{number}",
            event_timestamp=1_700_000_000_000 + number,
        )
    producer.flush()
    producer.close()
    found = read_all(client, topic, 20)
    assert [message.data() for message in found] == [b"payload %d " % number * 50 for number in range(20)]
    assert [message.partition_key() for message in found] == [f"key-{number}" for number in range(20)]
    assert [message.ordering_key() for message in found] == [f"order-{number}" for number in range(20)]
    assert [message.event_timestamp() for message in found] == [
        1_700_000_000_000 + number for number in range(20)
    ]
    assert found[7].properties() == {"number": "7", "empty": "", "é": "ü"}


def test_a_message_of_six_mebibytes_comes_in_chunks(client: pulsar.Client, topic: str) -> None:
    payload = bytes(range(256)) * (6 << 12)
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(b"before")
    producer.send(payload)
    producer.send(b"behind")
    found = read_all(client, topic, 3)
    assert [
        message.data() == expected
        for message, expected in zip(found, (b"before", payload, b"behind"), strict=True)
    ] == [True] * 3


def test_a_message_of_just_under_five_mebibytes_goes_in_one_piece_and_a_larger_one_does_not(
    client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    largest = bytes((5 << 20) - 200)  # its metadata counts as well, and is shorter than that
    producer.send(largest)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(5 << 20))
    assert read_all(client, topic, 1)[0].data() == largest


@pytest.mark.parametrize("batched", [False, True])
def test_pipelined_sends_are_stored_in_order_and_acknowledged_in_order(
    client: pulsar.Client, topic: str, batched: bool
) -> None:
    producer = client.create_producer(
        topic, batching_enabled=batched, block_if_queue_full=True, max_pending_messages=2000
    )
    receipts: list[tuple[int, int, int]] = []
    failures: list[pulsar.Result] = []

    def sent(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        if result == pulsar.Result.Ok:
            receipts.append((message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()))
        else:
            failures.append(result)

    for number in range(5000):
        producer.send_async(b"%d" % number, sent)
    producer.flush()
    assert not failures
    assert len(receipts) == 5000
    assert receipts == sorted(receipts)
    assert producer.last_sequence_id() == 4999
    found = read_all(client, topic, 5000)
    assert [int(message.data()) for message in found] == list(range(5000))
    assert [
        (one.message_id().ledger_id(), one.message_id().entry_id(), one.message_id().batch_index())
        for one in found
    ] == receipts


def test_a_delayed_message_is_stored_like_any_other(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    at_ms = int(time.time() * 1000) + 3_600_000
    message_id = producer.send(b"later", deliver_at=at_ms)
    assert message_id.entry_id() >= 0
    assert read_all(client, topic, 1)[0].data() == b"later"  # an exclusive consumer gets it at once


def test_partitions_each_take_their_share(server: MagnetarProcess, client: pulsar.Client, topic: str) -> None:
    make_partitioned(server, topic, 4)
    assert len(client.get_topic_partitions(topic)) == 4
    producer = client.create_producer(
        topic,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        batching_enabled=False,
    )
    for number in range(40):
        producer.send(b"%d" % number)
    found = read_all(client, topic, 40)
    assert sorted(int(message.data()) for message in found) == list(range(40))
    by_partition: dict[int, list[int]] = {}
    for message in found:
        by_partition.setdefault(message.message_id().partition(), []).append(int(message.data()))
    assert sorted(by_partition) == [0, 1, 2, 3]
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def test_a_name_is_taken_once(client: pulsar.Client, topic: str) -> None:
    first = client.create_producer(topic, producer_name="only-one")
    assert first.producer_name() == "only-one"
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="only-one")
    first.close()
    client.create_producer(topic, producer_name="only-one").close()


def test_an_exclusive_producer_is_alone_until_it_is_fenced(client: pulsar.Client, topic: str) -> None:
    modes = pulsar.ProducerAccessMode
    first = client.create_producer(topic, producer_name="first", access_mode=modes.Exclusive)
    first.send(b"1")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, producer_name="second", access_mode=modes.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="shared")
    second = client.create_producer(topic, producer_name="second", access_mode=modes.ExclusiveWithFencing)
    second.send(b"2")
    with pytest.raises((pulsar.ProducerFenced, pulsar.AlreadyClosed)):
        first.send(b"3")
    second.send(b"4")
    second.close()
    assert [message.data() for message in read_all(client, topic, 3)] == [b"1", b"2", b"4"]


def test_a_producer_waits_for_its_turn(client: pulsar.Client, topic: str) -> None:
    modes = pulsar.ProducerAccessMode
    first = client.create_producer(topic, access_mode=modes.Exclusive)
    made: list[pulsar.Producer] = []
    waiting = threading.Thread(
        target=lambda: made.append(client.create_producer(topic, access_mode=modes.WaitForExclusive))
    )
    waiting.start()
    waiting.join(1.0)
    assert waiting.is_alive()
    first.close()
    waiting.join(10.0)
    assert len(made) == 1
    made[0].send(b"my turn")


def test_a_missing_namespace_is_refused(client: pulsar.Client) -> None:
    with pytest.raises((pulsar.TopicNotFound, pulsar.PulsarException)):
        client.create_producer("persistent://public/nowhere/t")


def test_deduplication_survives_a_reconnection(server: MagnetarProcess, client: pulsar.Client) -> None:
    request = urllib.request.Request(
        f"{server.http_url}/admin/v2/namespaces/public/dedup/deduplication",
        data=b"true",
        method="POST",
        headers={"Content-Type": "application/json"},
    )
    make = urllib.request.Request(f"{server.http_url}/admin/v2/namespaces/public/dedup", method="PUT")
    with urllib.request.urlopen(make, timeout=10), urllib.request.urlopen(request, timeout=10):
        pass
    name = "persistent://public/dedup/t"
    producer = client.create_producer(name, producer_name="p")
    for number in (0, 1, 1, 0, 2):
        producer.send(b"%d" % number, sequence_id=number)
    producer.close()
    again = client.create_producer(name, producer_name="p")
    assert again.last_sequence_id() == 2
    again.send(b"2", sequence_id=2)
    again.send(b"3", sequence_id=3)
    assert [message.data() for message in read_all(client, name, 4)] == [b"0", b"1", b"2", b"3"]
