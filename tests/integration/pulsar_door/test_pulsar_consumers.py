"""pulsar-client consumes: every subscription type, readers, seeks, redelivery, batches, chunks, delays, many topics."""

import datetime
import re
import time
import urllib.request
from collections.abc import Callable

import pulsar  # type: ignore[import-untyped]
import pytest
from pulsar import ConsumerType, InitialPosition, MessageId

from magnetar.testing.server import MagnetarProcess

from .clients import new_client

Fill = Callable[..., list[MessageId]]
ALL_TYPES = (ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, ConsumerType.KeyShared)
WAIT_MS = 10_000
NOTHING_MS = 300


def take(consumer: pulsar.Consumer, count: int, acknowledge: bool = True) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        found.append(message.data())
        if acknowledge:
            consumer.acknowledge(message)
    return found


def nothing_comes(consumer: pulsar.Consumer) -> bool:
    with pytest.raises(pulsar.Timeout):
        consumer.receive(NOTHING_MS)
    return True


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


# Subscription types


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_what_is_acknowledged_never_comes_again(
    client: pulsar.Client, topic: str, fill: Fill, kind: ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    fill(topic, 50)
    assert sorted(take(consumer, 50)) == sorted(numbers(0, 50))
    consumer.close()
    fill(topic, 5, first=50)
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    assert sorted(take(consumer, 5)) == numbers(50, 55)
    assert nothing_comes(consumer)
    consumer.unsubscribe()
    consumer = client.subscribe(topic, "s", consumer_type=kind, initial_position=InitialPosition.Earliest)
    assert len(take(consumer, 55)) == 55


def test_a_second_exclusive_consumer_is_refused(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")


def test_another_type_is_refused_while_consumers_are_connected(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)
    consumer.close()
    client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared)


def test_shared_consumers_share_and_what_one_leaves_goes_to_the_other(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    first = client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    other_client = new_client(server.pulsar_url)
    second = other_client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
    fill(topic, 200, batching_enabled=False)
    mine = take(first, 20)
    theirs = take(second, 20, acknowledge=False)
    assert not set(mine) & set(theirs)
    other_client.close()
    assert sorted(mine + take(first, 180)) == sorted(numbers(0, 200))


def test_failover_goes_over_in_order(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    other = new_client(server.pulsar_url)
    consumers = {
        name: (owner, owner.subscribe(topic, "s", consumer_type=ConsumerType.Failover, consumer_name=name))
        for name, owner in (("a", client), ("b", other))
    }
    fill(topic, 20, batching_enabled=False)
    found: dict[str, list[bytes]] = {}
    for name, (_, consumer) in consumers.items():
        try:
            message = consumer.receive(1000)
        except pulsar.Timeout:
            continue
        consumer.acknowledge(message)
        found[name] = [message.data(), *take(consumer, 9)]
    ((active, first),) = found.items()
    assert first == numbers(0, 10)
    consumers[active][1].close()
    assert take(consumers["b" if active == "a" else "a"][1], 10) == numbers(10, 20)
    other.close()


def test_key_shared_keeps_the_order_of_a_key_over_joins_and_leaves(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    consumers = [client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared, consumer_name="c0")]
    seen: dict[str, list[int]] = {}

    def consume() -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < 0.5:
            for consumer in consumers:
                try:
                    message = consumer.receive(20)
                except pulsar.Timeout:
                    continue
                seen.setdefault(message.partition_key(), []).append(int(message.data()))
                consumer.acknowledge(message)
                idle_since = time.monotonic()

    sent = 0
    for step in range(4):
        for _ in range(50):
            producer.send(b"%d" % sent, partition_key=f"k{sent % 7}")
            sent += 1
        if step == 0:
            consumers.append(
                client.subscribe(topic, "s", consumer_type=ConsumerType.KeyShared, consumer_name="c1")
            )
        if step == 2:
            consumers.pop(0).close()
        consume()
    assert sum(map(len, seen.values())) == sent
    assert all(order == sorted(order) for order in seen.values())


# Readers


def test_readers_begin_where_they_are_told(client: pulsar.Client, topic: str, fill: Fill) -> None:
    ids = fill(topic, 20, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=50)

    def first(start: MessageId, **options: object) -> bytes:
        reader = client.create_reader(topic, start, **options)
        data: bytes = reader.read_next(WAIT_MS).data()
        reader.close()
        return data

    assert first(MessageId.earliest) == b"0"
    assert first(ids[7]) == b"8"
    assert first(ids[7], start_message_id_inclusive=True) == b"7"
    assert first(ids[4]) == b"5", "over the end of a batch"
    late = client.create_reader(topic, MessageId.latest)
    assert not late.has_message_available()
    fill(topic, 1, first=20)
    assert late.read_next(WAIT_MS).data() == b"20"


def test_a_reader_knows_when_there_is_no_more(client: pulsar.Client, topic: str, fill: Fill) -> None:
    reader = client.create_reader(topic, MessageId.earliest)
    assert not reader.has_message_available(), "an empty topic"
    fill(topic, 12, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=50)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT_MS).data())
    assert found == numbers(0, 12)


def test_a_reader_of_the_latest_message_inclusive_gets_it(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    fill(topic, 7)
    reader = client.create_reader(topic, MessageId.latest, start_message_id_inclusive=True)
    assert reader.has_message_available()
    assert reader.read_next(WAIT_MS).data() == b"6"
    assert not reader.has_message_available()


def test_readers_seek_by_id_and_by_time(client: pulsar.Client, topic: str, fill: Fill) -> None:
    ids = fill(topic, 5, batching_enabled=False)
    time.sleep(0.02)
    between_ms = int(time.time() * 1000)
    fill(topic, 5, first=5, batching_enabled=False)
    reader = client.create_reader(topic, MessageId.latest)
    reader.seek(ids[2])
    assert reader.read_next(WAIT_MS).data() == b"3"
    reader.seek(between_ms)
    assert reader.has_message_available()
    assert reader.read_next(WAIT_MS).data() == b"5"
    reader.seek(MessageId.earliest)
    assert reader.read_next(WAIT_MS).data() == b"0"
    reader.seek(MessageId.latest)
    assert not reader.has_message_available()


# Seeking and ids


def test_a_consumer_seeks_by_id_and_by_time(client: pulsar.Client, topic: str, fill: Fill) -> None:
    consumer = client.subscribe(topic, "s")
    ids = fill(topic, 10, batching_enabled=False)
    time.sleep(0.02)
    between_ms = int(time.time() * 1000)
    fill(topic, 10, first=10, batching_enabled=False)
    assert take(consumer, 20) == numbers(0, 20)
    consumer.seek(ids[4])
    assert take(consumer, 1) == [b"5"]
    consumer.seek(between_ms)
    assert take(consumer, 1) == [b"10"]
    consumer.seek(MessageId.earliest)
    assert take(consumer, 20) == numbers(0, 20)


def test_the_last_message_id_is_the_last_one_of_its_batch(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s")
    fill(topic, 10, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    last = consumer.get_last_message_id()
    assert (last.batch_index(), last.partition()) == (9, -1)


# Acknowledging and redelivery


def test_negative_acknowledgements_come_again_with_a_count(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
    )
    fill(topic, 2, batching_enabled=False)
    first, second = (consumer.receive(WAIT_MS) for _ in range(2))
    consumer.acknowledge(second)
    for count in range(1, 4):
        consumer.negative_acknowledge(first)
        first = consumer.receive(WAIT_MS)
        assert (first.data(), first.redelivery_count()) == (b"0", count)
    consumer.acknowledge(first)
    assert nothing_comes(consumer)


def test_exclusive_consumers_get_everything_again_in_order(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s")
    fill(topic, 10, batching_enabled=False)
    assert take(consumer, 4) == numbers(0, 4)
    take(consumer, 6, acknowledge=False)
    consumer.redeliver_unacknowledged_messages()
    assert take(consumer, 6) == numbers(4, 10)


@pytest.mark.slow
def test_unacknowledged_messages_come_again_after_the_clients_timeout(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=ConsumerType.Shared, unacked_messages_timeout_ms=10_000
    )
    fill(topic, 1)
    consumer.receive(WAIT_MS)
    again = consumer.receive(30_000)
    assert (again.data(), again.redelivery_count()) == (b"0", 1)


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(
        max_redeliver_count=2, dead_letter_topic=f"{topic}-DLQ", initial_subscription_name="kept"
    )
    consumer = client.subscribe(
        topic,
        "s",
        consumer_type=ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
    )
    fill(topic, 1)
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    dead = client.subscribe(f"{topic}-DLQ", "kept")
    message = dead.receive(WAIT_MS)
    assert message.data() == b"0"
    assert message.properties()["REAL_TOPIC"].endswith(topic)
    assert nothing_comes(consumer)


def test_messages_of_a_batch_are_acknowledged_one_by_one(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    def subscribe() -> pulsar.Consumer:
        return client.subscribe(topic, "s", batch_index_ack_enabled=True)

    consumer = subscribe()
    fill(topic, 10, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    for number in range(10):
        message = consumer.receive(WAIT_MS)
        if number % 2 == 0:
            consumer.acknowledge(message)
    consumer.close()
    consumer = subscribe()
    assert take(consumer, 5) == [b"1", b"3", b"5", b"7", b"9"]
    consumer.close()
    assert nothing_comes(subscribe())


def test_cumulative_acknowledgements_in_the_middle_of_a_batch(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    fill(topic, 20, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=500)
    messages = [consumer.receive(WAIT_MS) for _ in range(20)]
    consumer.acknowledge_cumulative(messages[13])
    consumer.close()
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert take(consumer, 6) == numbers(14, 20)


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


def test_a_table_view_has_the_last_value_of_each_key(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(12):
        producer.send(b"%d" % number, partition_key=f"k{number % 3}")
    view = client.create_table_view(topic)
    deadline = time.monotonic() + 10
    while view.get("k2") != b"11" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert {key: view.get(key) for key in ("k0", "k1", "k2")} == {"k0": b"9", "k1": b"10", "k2": b"11"}
    assert len(view) == 3
    view.close()


def test_a_paused_listener_hears_what_came_meanwhile_when_it_goes_on(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    heard: list[bytes] = []

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)

    consumer = client.subscribe(topic, "s", message_listener=listen)
    fill(topic, 5)
    _until(lambda: len(heard) == 5)
    consumer.pause_message_listener()
    fill(topic, 5, first=5)
    time.sleep(0.2)
    assert len(heard) == 5
    consumer.resume_message_listener()
    _until(lambda: len(heard) == 10)
    assert heard == numbers(0, 10)


def _until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


# Non-persistent topics


@pytest.mark.parametrize("kind", ALL_TYPES, ids=lambda kind: kind.name)
def test_a_non_persistent_topic_delivers_to_who_is_there(
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


# A small receiver queue, and a large backlog


@pytest.mark.parametrize("size", [1, 1000])
def test_a_backlog_is_read_whatever_the_receiver_queue(
    client: pulsar.Client, topic: str, fill: Fill, size: int
) -> None:
    client.subscribe(topic, "s").close()
    fill(topic, 3000, batching_enabled=True, max_pending_messages=5000)
    consumer = client.subscribe(topic, "s", receiver_queue_size=size)
    assert take(consumer, 3000) == numbers(0, 3000)


def test_a_consumer_without_a_receiver_queue_asks_for_each_message(
    client: pulsar.Client, topic: str, fill: Fill
) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=0)
    fill(topic, 50, batching_enabled=False)
    found = []
    for _ in range(50):
        message = consumer.receive()  # with a queue of none the client takes no timeout
        found.append(message.data())
        consumer.acknowledge(message)
    assert found == numbers(0, 50)


# Partitioned topics, patterns, retry letters


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
    time.sleep(0.02)
    between_ms = int(time.time() * 1000)
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


def test_two_clients_use_one_consumer_name_and_both_get_messages(
    server: MagnetarProcess, client: pulsar.Client, topic: str, fill: Fill
) -> None:
    other = new_client(server.pulsar_url)
    consumers = [
        owner.subscribe(
            topic, "s", consumer_type=ConsumerType.Shared, consumer_name="same", receiver_queue_size=10
        )
        for owner in (client, other)
    ]
    fill(topic, 100, batching_enabled=False)
    found = [take(consumer, 10) for consumer in consumers]
    assert not set(found[0]) & set(found[1])
    other.close()
