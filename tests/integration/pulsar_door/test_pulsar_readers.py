"""pulsar-client reads where it wants: readers, seeks, ids, table views."""

import time

import pulsar
from pulsar import MessageId

from .consuming import WAIT_MS, Fill, a_time_between, numbers, take

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
    between_ms = a_time_between()
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
    between_ms = a_time_between()
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


# Table views


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
