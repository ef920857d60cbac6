"""pulsar-client consumes kinds of messages and of topics: chunks, delays, codecs, many topics, partitions, patterns."""

import datetime
import re
import time
import urllib.request

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition

from magnetar.testing.server import MagnetarProcess

from .consuming import ALL_TYPES, WAIT_MS, Fill, a_time_between, nothing_comes, numbers, take

# What is sent


def test_a_chunked_message_arrives_whole(client: pulsar.Client, topic: str) -> None:
    for kind in (ConsumerType.Exclusive, ConsumerType.Shared):
        consumer = client.subscribe(topic, kind.name, consumer_type=kind)
        producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        content = bytes(range(256)) * (6 << 12)
        producer.send(content)
        message = consumer.receive(WAIT_MS)
        assert message.data() == content
        consumer.acknowledge(message)
        consumer.close()
        producer.close()
    assert nothing_comes(client.subscribe(topic, "Shared", consumer_type=ConsumerType.Shared))


def test_delayed_messages_wait_for_shared_consumers_only(client: pulsar.Client, topic: str) -> None:
    shared = client.subscribe(topic, "shared", consumer_type=ConsumerType.Shared)
    exclusive = client.subscribe(topic, "exclusive")
    producer = client.create_producer(topic)
    began = time.monotonic()
    producer.send(b"late", deliver_after=datetime.timedelta(seconds=2))
    producer.send(b"now")
    assert take(exclusive, 2) == [b"late", b"now"]
    assert take(shared, 2) == [b"now", b"late"]
    assert time.monotonic() - began >= 2


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_batches(client: pulsar.Client, topic: str, fill: Fill, codec: str) -> None:
    consumer = client.subscribe(topic, "s")
    fill(topic, 100, compression_type=getattr(pulsar.CompressionType, codec), batching_enabled=True)
    assert take(consumer, 100) == numbers(0, 100)


# Many topics


def test_one_consumer_of_many_topics(client: pulsar.Client, topic: str, fill: Fill) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    consumer = client.subscribe(names, "s", consumer_type=ConsumerType.Shared)
    for name in names:
        fill(name, 10)
    assert sorted(take(consumer, 30)) == sorted(numbers(0, 10) * 3)


# Partitioned topics and patterns


def partitioned(server: MagnetarProcess, topic: str, count: int) -> None:
    url = f"{server.http_url}/admin/v2/persistent/public/default/{topic}/partitions"
    request = urllib.request.Request(
        url, str(count).encode(), {"Content-Type": "application/json"}, method="PUT"
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 204


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_a_partitioned_topic_is_consumed_as_one(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill, kind: ConsumerType
) -> None:
    partitioned(server, topic, 3)
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    ids = fill(topic, 60, batching_enabled=False)
    assert {message_id.partition() for message_id in ids} == {0, 1, 2}
    assert sorted(take(consumer, 60)) == sorted(numbers(0, 60))
    consumer.close()
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    assert nothing_comes(consumer)
    consumer.unsubscribe()


def test_partitions_of_a_topic_are_sought_by_time(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    partitioned(server, topic, 2)
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    fill(topic, 10, batching_enabled=False)
    between_ms = a_time_between()
    fill(topic, 10, first=10, batching_enabled=False)
    take(consumer, 20)
    consumer.seek(between_ms)
    assert sorted(take(consumer, 10)) == numbers(10, 20)


def test_a_pattern_subscribes_to_what_matches_it(client: pulsar.Client, topic: str, fill: Fill) -> None:
    for number, name in enumerate((f"{topic}-0", f"{topic}-1", f"{topic}x")):
        fill(name, 1, first=number)
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{topic}-.*"),
        "s",
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
    )
    assert sorted(take(consumer, 2)) == [b"0", b"1"]
    assert nothing_comes(consumer)


# Non-persistent topics


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_a_non_persistent_topic_delivers_to_connected_consumers(
    client: pulsar.Client, topic: str, kind: ConsumerType
) -> None:
    name = f"non-persistent://public/default/{topic}"
    producer = client.create_producer(name, batching_enabled=False)
    producer.send(b"before")
    consumer = client.subscribe(name, "s", consumer_type=kind, initial_position=InitialPosition.Earliest)
    deadline = time.monotonic() + 10
    while True:  # SUBSCRIBE is answered before FLOW is sent: what comes in between is dropped
        producer.send(b"after")
        try:
            message = consumer.receive(200)
            break
        except pulsar.Timeout:
            assert time.monotonic() < deadline, "nothing was delivered"
    assert message.data() == b"after"
    consumer.acknowledge(message)
    consumer.close()
