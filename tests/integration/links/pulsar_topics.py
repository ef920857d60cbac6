"""Topics of a real Pulsar, or of a real server: made, written, and read as clients and as a link see them."""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.error import HTTPError

import pulsar

from magnetar.links.address import PulsarAddress, address_of
from magnetar.links.port import End
from magnetar.links.pulsar.entries import SourceEntry
from magnetar.links.pulsar.settings import settings_of
from magnetar.links.pulsar.source import PulsarSource
from tests.pulsar_peer import admin

from .cloning import TIMEOUT_S, eventually

NAMESPACE = "public/default"
_names = itertools.count()


class Seen(NamedTuple):
    """A message, as a client sees it."""

    data: bytes
    key: str
    ordering_key: str
    properties: dict[str, str]
    event_ms: int
    publish_ms: int
    producer: str


@contextmanager
def connected(url: str) -> Iterator[pulsar.Client]:
    client = pulsar.Client(
        url, operation_timeout_seconds=60, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        yield client
    finally:
        client.close()


def new_topic(http_url: str, partitions: int = 0) -> str:
    """The local name of a topic that no other test has; without partitions if there are to be none."""
    name = f"p{next(_names)}-{os.getpid()}"
    made = f"persistent/{NAMESPACE}/{name}"
    eventually(lambda: _is_made(http_url, made, partitions), "Pulsar finds no bookie for the topic")
    return name


def _is_made(http_url: str, topic: str, partitions: int) -> bool:
    try:
        if partitions:
            admin(http_url, f"{topic}/partitions", "PUT", partitions)
        else:
            admin(http_url, topic, "PUT")
    except HTTPError as error:
        # A standalone's only bookie is away for a moment when its registration is renewed on a busy machine.
        if error.code == 500 and "Not enough non-faulty bookies" in error.msg:
            return False
        raise
    return True


def address(url: str, topic: str) -> str:
    return f"{url}/{NAMESPACE}/{topic}"


def publish(url: str, topic: str, numbers: Iterable[int], **settings: Any) -> None:
    """Messages whose values say their numbers, with keys, ordering keys, properties and event times."""
    failed: list[Any] = []
    with connected(url) as client:
        given = {"batching_enabled": True, "batching_max_publish_delay_ms": 5, "block_if_queue_full": True}
        producer = client.create_producer(topic, **{**given, **settings})
        for number in numbers:
            producer.send_async(
                b"%d" % number,
                lambda result, _: failed.append(result) if result != pulsar.Result.Ok else None,
                properties={"n": str(number), "empty": ""},
                partition_key=f"key-{number % 50}",
                ordering_key=f"order-{number % 7}" if number % 2 else None,
                event_timestamp=1_600_000_000_000 + number if number % 3 else None,
            )
        producer.flush()
        producer.close()
    assert not failed, failed[:3]


def entries(url: str, topic: str) -> dict[int, list[bytes]]:
    """All entries of each partition, byte for byte, as their producers have sent them; none if there is no topic."""
    return {
        partition: [bytes(one.data) for one in found] for partition, found in read_all(url, topic).items()
    }


def read_all(url: str, topic: str, since_ms: int | None = None) -> dict[int, list[SourceEntry]]:
    found_address = address_of(address(url, topic))
    assert isinstance(found_address, PulsarAddress)
    source = PulsarSource(found_address, settings_of({}))
    try:
        topics = source.topics(topic.__eq__)
        if not topics:
            return {}
        (found,) = topics
        places = [(found.name, partition) for partition in range(found.partition_count)]
        source.assign({place: source.begins_at(place, since_ms) for place in places})
        read: dict[int, list[SourceEntry]] = {partition: [] for _, partition in places}
        ended: set[int] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while len(ended) < len(places):
            assert time.monotonic() < deadline, source.trouble
            for one in source.read(0.2):
                if isinstance(one, SourceEntry):
                    read[one.partition].append(one)
                elif isinstance(one, End):
                    ended.add(one.partition)
        return read
    finally:
        source.close()


def is_same(source: str, copy: str, topic: str) -> bool:
    """Whether the copy has all that the source has, in order."""
    return entries(source, topic) == entries(copy, topic)


def seen(url: str, topic: str, counts: Sequence[int]) -> list[list[Seen]]:
    """What a reader of each partition sees: so many messages and then none."""
    found = []
    with connected(url) as client:
        names = client.get_topic_partitions(topic)
        assert len(names) == len(counts)
        for name, count in zip(names, counts, strict=True):
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            found.append([_seen(reader.read_next(int(TIMEOUT_S * 1000))) for _ in range(count)])
            assert not reader.has_message_available()
            reader.close()
    return found


def _seen(message: pulsar.Message) -> Seen:
    return Seen(
        message.data(),
        message.partition_key(),
        message.ordering_key(),
        message.properties(),
        message.event_timestamp(),
        message.publish_timestamp(),
        message.producer_name(),
    )


def received(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(int(TIMEOUT_S * 1000)) for _ in range(count)]


def numbers_of(messages: Iterable[pulsar.Message]) -> list[int]:
    return [int(message.data()) for message in messages]


def has_left(http_url: str, topic: str, subscription: str, count: int, partitions: int = 0) -> bool:
    """Whether so many messages are not acknowledged, in all partitions."""
    names = [f"{topic}-partition-{index}" for index in range(partitions)] or [topic]
    stats = [admin(http_url, f"persistent/{NAMESPACE}/{name}/stats")["subscriptions"] for name in names]
    left = [one[subscription]["msgBacklog"] for one in stats if subscription in one]
    return len(left) == len(names) and sum(left) == count
