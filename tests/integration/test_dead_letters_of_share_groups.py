"""What share consumers reject, or do not accept in time, goes to their group's dead-letter topic (KIP-1191)."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from magnetar.testing.server import MagnetarProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
TOPIC, COPY = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
ENABLED = "errors.deadletterqueue.group.enable"


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings=SETTINGS) as one:
        yield one


def configure(server: MagnetarProcess, group: str, letters: str, *, copies: bool) -> None:
    """A share group that begins at the start of its topics, and has dead letters there."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    wanted = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "2",
        TOPIC: letters,
        COPY: str(copies).lower(),
    }
    entries = [ConfigEntry(*one, incremental_operation=AlterConfigOpType.SET) for one in wanted.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for change in admin.incremental_alter_configs([resource]).values():
        change.result(30)


def make(
    server: MagnetarProcess, group: str, letters: str, *, enabled: str = "", copies: bool = False
) -> str:
    """A topic of three partitions, with records in the second one, and a group that begins at its start."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topics = [NewTopic(f"of-{group}", 3, 1)]
    if enabled:
        topics.append(NewTopic(letters, 2, 1, config={ENABLED: enabled}))
    for made in admin.create_topics(topics).values():
        made.result(30)
    configure(server, group, letters, copies=copies)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "compression.type": "lz4"})
    for number in range(5):
        producer.produce(f"of-{group}", b"value %d" % number, b"key %d" % number, partition=1)
    assert producer.flush(30) == 0
    return f"of-{group}"


def take(
    server: MagnetarProcess, group: str, topic: str, says: Callable[[Any], AcknowledgeType], count: int
) -> list[int]:
    """Acknowledge records as `says` has it until so many were delivered; their offsets."""
    consumer = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    offsets: list[int] = []
    ends = time.monotonic() + PATIENCE_S
    while len(offsets) < count:
        assert time.monotonic() < ends, offsets
        for message in consumer.poll(timeout=0.5) or []:
            assert message.error() is None, message.error()
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
            consumer.acknowledge(message, says(message))
        for errors in (consumer.commit_sync(timeout=30) or {}).values():
            assert errors is None, errors
    consumer.close()
    return offsets


def letters_in(server: MagnetarProcess, topic: str, partition: int, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reads-letters"})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found: list[Any] = []
    ends = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < ends:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message)
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition))[1] == count
    consumer.close()
    return found


def told(message: Any) -> dict[str, str]:
    return {name.removeprefix("__dlq.errors."): value.decode() for name, value in message.headers()}


def test_a_rejected_record_is_told_of_with_kafkas_headers(server: MagnetarProcess) -> None:
    topic = make(server, "rejects", "dlq.rejected", enabled="true")
    odd = lambda message: AcknowledgeType.REJECT if message.offset() % 2 else AcknowledgeType.ACCEPT  # noqa: E731
    assert take(server, "rejects", topic, odd, 5) == [0, 1, 2, 3, 4]
    found = letters_in(server, "dlq.rejected", 1, 2)  # in the partition of that number
    assert [told(message) for message in found] == [
        {
            "topic": topic,
            "partition": "1",
            "offset": offset,
            "group": "rejects",
            "delivery.count": "1",
            "message": "Offset rejected by client.",
        }
        for offset in ("1", "3")
    ]
    assert [(message.key(), message.value()) for message in found] == [(None, None)] * 2


def test_a_topic_is_made_and_has_copies_of_what_was_delivered_too_often(server: MagnetarProcess) -> None:
    topic = make(server, "releases", "dlq.released", copies=True)
    assert sorted(take(server, "releases", topic, lambda _: AcknowledgeType.RELEASE, 10)) == sorted(
        [0, 1, 2, 3, 4] * 2
    )
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, "dlq.released")
    assert admin.describe_configs([resource])[resource].result(30)[ENABLED].value == "true"
    found = letters_in(server, "dlq.released", 0, 5)
    contents = {told(message)["offset"]: (message.key(), message.value()) for message in found}
    assert contents == {str(n): (b"key %d" % n, b"value %d" % n) for n in range(5)}
    assert {told(message)["delivery.count"] for message in found} == {"2"}
    assert {told(message)["message"] for message in found} == {
        "Offset delivery count exceeded the threshold."
    }


@pytest.mark.parametrize("letters", ["others", "dlq.closed"])
def test_a_topic_that_is_not_for_dead_letters_gets_none_and_the_group_goes_on(
    server: MagnetarProcess, letters: str
) -> None:
    """Else whoever may write to one topic could have a group write to any."""
    group = f"goes-on-{letters}"
    enabled = "true" if letters == "others" else "false"
    topic = make(server, group, letters, enabled=enabled)
    assert take(server, group, topic, lambda _: AcknowledgeType.REJECT, 5) == [0, 1, 2, 3, 4]
    assert letters_in(server, letters, 1, 0) == []
    assert "gives up records of persistent://public/default/of-goes-on-" in server.log


def test_what_was_rejected_is_given_up_and_has_its_letter_after_a_kill() -> None:
    with MagnetarProcess(settings=SETTINGS) as server:
        topic = make(server, "killed", "dlq.killed", enabled="true")
        assert take(server, "killed", topic, lambda _: AcknowledgeType.REJECT, 5) == [0, 1, 2, 3, 4]
        server.kill()
        server.restart()
        assert [told(message)["offset"] for message in letters_in(server, "dlq.killed", 1, 5)] == list(
            "01234"
        )
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        producer.produce(topic, b"another", partition=1)
        assert producer.flush(30) == 0
        assert take(server, "killed", topic, lambda _: AcknowledgeType.ACCEPT, 1) == [5]


def test_a_group_takes_only_the_name_of_a_topic(server: MagnetarProcess) -> None:
    with pytest.raises(confluent_kafka.KafkaException, match="must not begin with __"):
        make(server, "named-wrong", "__consumer_offsets")


def test_two_topics_that_are_each_others_dead_letters_grow_by_rejections_alone(
    server: MagnetarProcess,
) -> None:
    """Each letter is one that a client has asked for, and no larger than the first: nothing goes round by itself."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topics = [NewTopic(name, 1, 1, config={ENABLED: "true"}) for name in ("dlq.one", "dlq.two")]
    for made in admin.create_topics(topics).values():
        made.result(30)
    configure(server, "reads-one", "dlq.two", copies=True)
    configure(server, "reads-two", "dlq.one", copies=True)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("dlq.one", b"value" * 100, b"key")
    assert producer.flush(30) == 0
    for number in range(3):
        assert take(server, "reads-one", "dlq.one", lambda _: AcknowledgeType.REJECT, 1) == [number]
        assert take(server, "reads-two", "dlq.two", lambda _: AcknowledgeType.REJECT, 1) == [number]
    assert take(server, "reads-one", "dlq.one", lambda _: AcknowledgeType.ACCEPT, 1) == [3]
    found = letters_in(server, "dlq.one", 0, 4)[1:] + letters_in(server, "dlq.two", 0, 3)
    for message in found:
        assert (message.key(), message.value()) == (b"key", b"value" * 100)
        assert len(message.headers()) == len(told(message)) == 6, "those of the rejection before are gone"
