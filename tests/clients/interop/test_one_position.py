"""A Kafka group and a Pulsar subscription of one name are one position, wherever in a batch a client moves it.

These tests also say that offsets and message ids name the same records: the position goes in as the one and
comes out as the other.
"""

import json
import time
import urllib.request
from collections.abc import Callable

import confluent_kafka
import pulsar
import pytest

from tests.clients.adapters import Confluent, Record, create_topic
from tests.clients.interop.interop_corpus import Message, Mode
from tests.clients.interop.interop_doors import Doors
from tests.clients.interop.pulsar_python import PulsarPython, client, position_of, receive_raw

pytestmark = pytest.mark.clients

KAFKA = Confluent()
PULSAR = PulsarPython()
COUNT = 40
# In the first batch, at its end, at the next one's start, in the middle, at the end of all.
PLACES = (0, 4, 15, 16, 23, COUNT - 1)
SETTLED_S = 10.0
WRITERS = ("kafka", "pulsar-plain", "pulsar-batched")
FreshName = Callable[[str], str]


@pytest.fixture(scope="module")
def written(doors: Doors) -> Callable[[str], str]:
    """The topic that holds `COUNT` messages of one kind of writer."""
    topics: dict[str, str] = {}

    def write(writer: str) -> str:
        if writer not in topics:
            topic = f"position-{writer}"
            create_topic(doors.kafka, topic, 1)
            values = [b"%d" % n for n in range(COUNT)]
            if writer == "kafka":
                records = [Record(0, b"k", value, (), 1_700_000_000_000) for value in values]
                KAFKA.produce(doors.kafka, topic, "lz4", records)
            else:
                messages = [Message(0, "k", value, {}, 1_700_000_000_000) for value in values]
                packing = writer.removeprefix("pulsar-")
                PULSAR.produce(doors.pulsar, topic, Mode("lz4", packing), messages)
            topics[writer] = topic
        return topics[writer]

    return write


def committed(doors: Doors, topic: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": doors.kafka, "group.id": group})
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=10)
        return int(found.offset)
    finally:
        consumer.close()


def commit(doors: Doors, topic: str, group: str, offset: int) -> None:
    """As an empty group: no member is subscribed."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": doors.kafka, "group.id": group})
    try:
        where = confluent_kafka.TopicPartition(topic, 0, offset)
        (done,) = consumer.commit(offsets=[where], asynchronous=False)
        assert done.error is None
    finally:
        consumer.close()


def backlog(doors: Doors, topic: str, subscription: str) -> int:
    url = f"{doors.http}/admin/v2/persistent/public/default/{topic}-partition-0/stats"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return int(json.load(answer)["subscriptions"][subscription]["msgBacklog"])


def part_by_part(connection: pulsar.Client, topic: str, group: str) -> pulsar.Consumer:
    """A consumer that acknowledges the parts of a batch one by one; a new subscription begins with the topic."""
    return connection.subscribe(
        topic, group, initial_position=pulsar.InitialPosition.Earliest, batch_index_ack_enabled=True
    )


def soon(ask: Callable[[], int], wanted: int) -> int:
    """What `ask` says once it says `wanted`, or at the end of the time that a client may take to send it."""
    deadline = time.monotonic() + SETTLED_S
    while (found := ask()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("writer", WRITERS)
def test_an_acknowledgement_moves_the_committed_offset(
    doors: Doors, fresh_name: FreshName, written: Callable[[str], str], writer: str
) -> None:
    topic, group = written(writer), fresh_name("group")
    with client(doors.pulsar) as connection:
        consumer = part_by_part(connection, topic, group)
        messages = receive_raw(consumer, COUNT)
        for place in PLACES:
            consumer.acknowledge_cumulative(messages[place])
            assert soon(lambda: committed(doors, topic, group), place + 1) == place + 1
            assert backlog(doors, topic, group) == COUNT - place - 1
        consumer.close()
    assert committed(doors, topic, group) == COUNT


@pytest.mark.parametrize("writer", WRITERS)
def test_a_commit_moves_the_subscription(
    doors: Doors, fresh_name: FreshName, written: Callable[[str], str], writer: str
) -> None:
    topic, group = written(writer), fresh_name("group")
    with client(doors.pulsar) as connection:
        # From the first acknowledgement of a part of a batch the broker knows that these consumers can.
        consumer = part_by_part(connection, topic, group)
        consumer.acknowledge_cumulative(receive_raw(consumer, 1)[0])
        consumer.close()
        for place in (*PLACES[:-1], 7):  # the last one moves it back
            commit(doors, topic, group, place + 1)
            consumer = part_by_part(connection, topic, group)
            messages = receive_raw(consumer, COUNT - place - 1)
            consumer.close()
            assert [message.data() for message in messages] == [b"%d" % n for n in range(place + 1, COUNT)]
            assert backlog(doors, topic, group) == COUNT - place - 1


def test_a_commit_into_a_batch_brings_the_batch_to_consumers_that_acknowledge_whole_ones(
    doors: Doors, fresh_name: FreshName, written: Callable[[str], str]
) -> None:
    topic, group = written("pulsar-batched"), fresh_name("group")
    with client(doors.pulsar) as connection:
        commit(doors, topic, group, 20)  # its batch begins at 16
        consumer = connection.subscribe(topic, group)
        messages = receive_raw(consumer, COUNT - 16)
        assert [message.data() for message in messages] == [b"%d" % n for n in range(16, COUNT)]
        for message in messages:
            consumer.acknowledge(message)
        assert soon(lambda: committed(doors, topic, group), COUNT) == COUNT
        consumer.close()


@pytest.mark.parametrize("writer", WRITERS)
def test_a_kafka_group_goes_on_where_a_subscription_was_left(
    doors: Doors, fresh_name: FreshName, written: Callable[[str], str], writer: str
) -> None:
    topic, group = written(writer), fresh_name("group")
    with client(doors.pulsar) as connection:
        consumer = part_by_part(connection, topic, group)
        messages = receive_raw(consumer, 11)
        consumer.acknowledge_cumulative(messages[-1])
        consumer.close()
    records = KAFKA.consume_in_group(doors.kafka, topic, group, COUNT - 11)
    assert [record.offset for record in records] == list(range(11, COUNT))


@pytest.mark.parametrize("writer", WRITERS)
def test_a_message_id_finds_the_record_of_its_offset(
    doors: Doors, written: Callable[[str], str], writer: str
) -> None:
    topic = written(writer)
    records = KAFKA.consume(doors.kafka, topic, 1, COUNT)
    with client(doors.pulsar) as connection:
        reader = connection.create_reader(topic, pulsar.MessageId.earliest, start_message_id_inclusive=True)
        messages = [reader.read_next(5000) for _ in range(COUNT)]
        assert [message.data() for message in messages] == [record.value for record in records]
        reader.close()
        ids = [position_of(message.message_id()) for message in messages]
        assert ids == sorted(set(ids))
        for place in PLACES:
            # Not by seek: the client may hand out what it had before, when it is asked while it comes back.
            reader = connection.create_reader(
                topic, messages[place].message_id(), start_message_id_inclusive=True
            )
            assert reader.read_next(5000).data() == records[place].value
            reader.close()


def test_a_commit_is_refused_while_pulsar_consumers_hold_the_subscription(
    doors: Doors, fresh_name: FreshName, written: Callable[[str], str]
) -> None:
    topic, group = written("kafka"), fresh_name("group")
    with client(doors.pulsar) as connection:
        consumer = connection.subscribe(topic, group, initial_position=pulsar.InitialPosition.Earliest)
        with pytest.raises(confluent_kafka.KafkaException):
            commit(doors, topic, group, 5)
        consumer.close()
    commit(doors, topic, group, 5)
    assert committed(doors, topic, group) == 5


def test_a_subscription_is_refused_while_a_kafka_group_has_members(
    doors: Doors, fresh_name: FreshName, written: Callable[[str], str]
) -> None:
    topic, group = written("kafka"), fresh_name("group")
    member = confluent_kafka.Consumer(
        {"bootstrap.servers": doors.kafka, "group.id": group, "auto.offset.reset": "earliest"}
    )
    try:
        member.subscribe([topic])
        assert member.consume(1, 20)
        with client(doors.pulsar) as connection, pytest.raises(pulsar.ConsumerBusy):
            connection.subscribe(topic, group)
    finally:
        member.close()
    with client(doors.pulsar) as connection:
        connection.subscribe(topic, group).close()
