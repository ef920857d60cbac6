"""A Kafka group and a Pulsar subscription of one name are one position: seen and moved from both sides."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pulsar
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from pulsar import ConsumerType, InitialPosition

from magnetar.testing.server import MagnetarProcess

from .consuming import Fill, numbers, take


@contextmanager
def group(server: MagnetarProcess, name: str) -> Iterator[confluent_kafka.Consumer]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def committed(server: MagnetarProcess, name: str, topic: str) -> int:
    with group(server, name) as consumer:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=10)
        assert found.error is None
        return int(found.offset)


def poll(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(values) < count:
        assert time.monotonic() < deadline, f"only {len(values)} of {count} came"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            values.append(message.value() or b"")
    return values


def test_pulsar_acknowledges_and_the_kafka_group_goes_on_there(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, topic, initial_position=InitialPosition.Earliest)
    fill(topic, 10, batching_enabled=False)
    assert take(consumer, 4) == numbers(0, 4)
    deadline = time.monotonic() + 5
    while (
        committed(server, topic, topic) < 4
    ):  # while the consumer is connected; acknowledgements travel in groups
        assert time.monotonic() < deadline
    consumer.close()
    with group(server, topic) as kafka:
        kafka.subscribe([topic])
        assert poll(kafka, 6) == numbers(4, 10)
        kafka.commit(asynchronous=False)
    consumer = client.subscribe(topic, topic)
    fill(topic, 3, first=10, batching_enabled=False)
    assert take(consumer, 3) == numbers(10, 13)


def test_kafka_commits_and_the_pulsar_subscription_goes_on_there_in_the_middle_of_a_batch(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    fill(topic, 20, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    with group(server, topic) as kafka:
        kafka.commit(offsets=[TopicPartition(topic, 0, 13)], asynchronous=False)
    consumer = client.subscribe(topic, topic, batch_index_ack_enabled=True)
    # A client that acknowledges whole batches would wait for messages that it was not shown: it gets the batch whole.
    assert take(consumer, 10) == numbers(10, 20)
    consumer.close()
    assert committed(server, topic, topic) == 20


def test_a_commit_is_refused_while_pulsar_consumers_are_connected(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    fill(topic, 10)
    consumer = client.subscribe(topic, topic, consumer_type=ConsumerType.Shared)
    with group(server, topic) as kafka:
        with pytest.raises(KafkaException) as refused:
            kafka.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
        consumer.close()
        kafka.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    assert committed(server, topic, topic) == 5


def test_a_consumer_is_refused_while_the_kafka_group_consumes_the_topic(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    fill(topic, 10)
    with group(server, topic) as kafka:
        kafka.subscribe([topic])
        assert len(poll(kafka, 10)) == 10
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe(topic, topic)
        client.subscribe(topic, "another").close()
    client.subscribe(topic, topic).close()


def test_lag_is_backlog_with_and_without_connected_consumers(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, topic)
    fill(topic, 10, batching_enabled=False)
    take(consumer, 6)
    deadline = time.monotonic() + 5
    while committed(server, topic, topic) < 6:
        assert time.monotonic() < deadline
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    groups = admin.list_consumer_groups().result(10).valid
    assert topic in [one.group_id for one in groups], "kafka-consumer-groups --list"
    consumer.close()
    assert committed(server, topic, topic) == 6


def test_deleting_the_group_deletes_the_subscription_unless_it_is_used(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    fill(topic, 5)
    consumer = client.subscribe(topic, topic, initial_position=InitialPosition.Earliest)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (deleted,) = admin.delete_consumer_groups([topic]).values()
    with pytest.raises(KafkaException) as refused:
        deleted.result(10)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    take(consumer, 5)
    consumer.close()
    (deleted,) = admin.delete_consumer_groups([topic]).values()
    deleted.result(10)
    consumer = client.subscribe(topic, topic, initial_position=InitialPosition.Earliest)
    assert take(consumer, 5) == numbers(0, 5)


def test_what_kafka_wrote_is_shared_and_acknowledged_by_pulsar_consumers_of_every_type(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 100})
    for number in range(200):
        producer.produce(topic, b"%d" % number, key=b"k%d" % (number % 10))
    producer.flush()
    for kind in (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared):
        consumers = [
            client.subscribe(
                topic,
                kind.name,
                consumer_type=kind,
                initial_position=InitialPosition.Earliest,
                consumer_name=f"c{number}",
            )
            for number in range(1 if kind is ConsumerType.Exclusive else 2)
        ]
        found: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(found) < 200:
            assert time.monotonic() < deadline, f"{kind}: only {len(found)} came"
            for consumer in consumers:
                try:
                    message = consumer.receive(20)
                except pulsar.Timeout:
                    continue
                found.append(message.data())
                consumer.acknowledge(message)
        assert sorted(found) == sorted(numbers(0, 200))
        for consumer in consumers:
            consumer.close()
        assert committed(server, kind.name, topic) == 200
