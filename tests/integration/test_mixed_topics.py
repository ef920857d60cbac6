"""Real clients of both protocols on one topic: what one sends is what the other gets."""

import base64
import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.testing.server import MagnetarProcess

pytestmark = pytest.mark.clients

TIMEOUT_S = 30.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PULSAR_CODECS = [getattr(pulsar.CompressionType, name) for name in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")]
_topic_numbers = itertools.count()

blobs = st.binary(max_size=30) | st.text(max_size=10).map(str.encode)
header_names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)
kafka_records = st.fixed_dictionaries(
    {
        "value": st.none() | blobs,
        "key": st.none() | blobs,
        "headers": st.lists(st.tuples(header_names, st.none() | blobs), max_size=20),
        "timestamp": st.integers(1, 1_700_000_000_000),  # the future is refused
    }
)
pulsar_texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
pulsar_messages = st.fixed_dictionaries(
    {
        "content": blobs,
        "partition_key": st.none() | pulsar_texts.filter(bool),
        "properties": st.none() | st.dictionaries(pulsar_texts, pulsar_texts, max_size=20),
        "event_timestamp": st.none() | st.integers(1, 2_000_000_000_000),
        "ordering_key": st.none() | pulsar_texts.filter(bool),
    }
)


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as running:
        yield running


@pytest.fixture(scope="module")
def client(server: MagnetarProcess) -> Iterator[Any]:
    made = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture(scope="module")
def bootstrap(server: MagnetarProcess) -> str:
    return f"127.0.0.1:{server.ports[0]}"


def new_topic() -> str:
    return f"interop-{next(_topic_numbers)}"


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], codec: str = "none") -> list[int]:
    """The offsets that the records got; they are sent as few batches as possible."""
    producer = Producer(
        # Producers that wait for their garbage collection would tell the console that the server has gone.
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "log_level": 0}
    )
    offsets: list[int] = []
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)
        offsets.append(message.offset())

    for record in records:
        producer.produce(topic, on_delivery=delivered, **record)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []
    return offsets


def consume(bootstrap: str, topic: str, end_offset: int, offset: int = 0) -> list[Any]:
    """The messages from `offset` on, until the consumer's position is `end_offset`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        place = TopicPartition(topic, 0, offset)
        consumer.assign([place])
        found: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_S
        while not (found and found[-1].offset() == end_offset - 1):
            message = consumer.poll(0.5)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
            elif consumer.position([place])[0].offset == end_offset:
                break
            assert time.monotonic() < deadline, f"{len(found)} messages after {TIMEOUT_S} s"
        return found
    finally:
        consumer.close()


def read(client: Any, topic: str, count: int) -> list[Any]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    try:
        return [reader.read_next(int(TIMEOUT_S * 1000)) for _ in range(count)]
    finally:
        reader.close()


@settings(max_examples=15)
@given(st.lists(kafka_records, min_size=1, max_size=8), st.sampled_from(CODECS))
def test_what_confluent_kafka_sends_is_what_pulsar_client_gets(
    client: Any, bootstrap: str, records: list[dict[str, Any]], codec: str
) -> None:
    topic = new_topic()
    assert produce(bootstrap, topic, records, codec) == list(range(len(records)))
    for message, record in zip(read(client, topic, len(records)), records, strict=True):
        assert message.data() == (record["value"] or b"")
        assert message.event_timestamp() == record["timestamp"]
        key = record["key"]
        if key is None or _is_text(key):
            assert message.partition_key() == (key or b"").decode()
        else:
            assert base64.b64decode(message.partition_key()) == key
        shown = message.properties()
        assert len(shown) == len(record["headers"])
        names = [name for name, _ in record["headers"]]
        for name, value in record["headers"]:
            if names.count(name) == 1 and value is not None and _is_text(value) and ";" not in name:
                assert shown[name] == value.decode()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=15)
@given(
    st.lists(pulsar_messages, min_size=1, max_size=8),
    st.sampled_from(PULSAR_CODECS),
    st.booleans(),
)
def test_what_pulsar_client_sends_is_what_confluent_kafka_gets(
    client: Any, bootstrap: str, messages: list[dict[str, Any]], codec: Any, batched: bool
) -> None:
    topic = new_topic()
    began_ms = int(time.time() * 1000) - 1000
    producer = client.create_producer(
        topic, compression_type=codec, batching_enabled=batched, batching_max_publish_delay_ms=20
    )
    for message in messages:
        producer.send_async(callback=None, **message)
    producer.flush()
    producer.close()
    for offset, (record, sent) in enumerate(
        zip(consume(bootstrap, topic, len(messages)), messages, strict=True)
    ):
        assert record.offset() == offset
        assert record.value() == sent["content"]
        assert record.key() == (None if sent["partition_key"] is None else sent["partition_key"].encode())
        if sent["event_timestamp"] is None:
            assert began_ms <= record.timestamp()[1] <= time.time() * 1000 + 1000
        else:
            assert record.timestamp()[1] == sent["event_timestamp"]
        wanted = {name: text.encode() for name, text in (sent["properties"] or {}).items()}
        if sent["ordering_key"] is not None:
            wanted["pulsar-ordering-key"] = sent["ordering_key"].encode()
        assert dict(record.headers() or []) == wanted


def test_records_that_a_pulsar_client_passes_on_are_the_same_to_kafka(client: Any, bootstrap: str) -> None:
    source, target = new_topic(), new_topic()
    headers = [("a", b"1"), ("a", b"\xff"), ("n", None), ("x;0;null", b"text"), ("ä", "ö".encode())]
    record = {"value": b"v", "key": b"k", "headers": headers, "timestamp": 1_700_000_000_000}
    produce(bootstrap, source, [record])
    (message,) = read(client, source, 1)
    producer = client.create_producer(target)
    producer.send(
        message.data(),
        partition_key=message.partition_key(),
        properties=message.properties(),
        event_timestamp=message.event_timestamp(),
    )
    (back,) = consume(bootstrap, target, 1)
    assert (back.key(), back.value(), back.timestamp()[1]) == (b"k", b"v", 1_700_000_000_000)
    assert sorted(back.headers(), key=str) == sorted(headers, key=str)


def test_both_write_to_one_topic_and_both_read_all_of_it(client: Any, bootstrap: str) -> None:
    topic = new_topic()
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    large = random.Random(1).randbytes(6 << 20)
    produce(bootstrap, topic, [{"value": b"kafka %d" % index} for index in range(3)])
    producer.send(large)
    producer.send(b"pulsar")
    offsets = produce(bootstrap, topic, [{"value": b"x" * 900_000}, {"value": b"kafka"}])
    end = offsets[-1] + 1
    found = consume(bootstrap, topic, end)
    values = [b"kafka 0", b"kafka 1", b"kafka 2", large, b"pulsar", b"x" * 900_000, b"kafka"]
    assert [one.value() for one in found] == values
    assert [one.offset() for one in found] == [0, 1, 2, 4, 5, 6, 7]  # 3 is the large one's first chunk
    assert [one.data() for one in read(client, topic, len(values))] == values
    assert [one.offset() for one in consume(bootstrap, topic, end, offset=4)] == [4, 5, 6, 7]


def test_a_topic_that_ends_in_chunks_without_their_message_ends_for_kafka_too(
    client: Any, bootstrap: str, server: MagnetarProcess
) -> None:
    """A consumer's position gets behind offsets that have no record, and it is not told of an error."""
    topic = new_topic()
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    producer.send(b"first")
    producer.send(random.Random(1).randbytes(6 << 20))
    assert [one.offset() for one in consume(bootstrap, topic, 3)] == [0, 2]
    # Begun in the middle: nothing is missing, the first chunk is in front of where it began.
    assert [one.offset() for one in consume(bootstrap, topic, 3, offset=2)] == [2]
    assert "Traceback" not in server.log
