"""A server whose worker runs replicators, and what tests do with them: write, read, and look at subscriptions."""

import itertools
import json
import os
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.pipelines import PATIENCE_S, World

KEYS = 10
Copied = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
_names = itertools.count()


def make_topic(bootstrap: str, partitions: int = 2, **config: str) -> str:
    """A new topic with a name that no other test has."""
    name = f"target-{os.getpid()}-{next(_names)}"
    new = NewTopic(name, partitions, 1, config={key.replace("_", "."): one for key, one in config.items()})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([new])[name].result(60)
    return name


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def replicator(topic: str, bootstrap: str, target: str, **more: Any) -> dict[str, Any]:
    """The configuration of a replicator to Kafka, as the server makes it."""
    properties = {"bootstrap.servers": bootstrap, **more.pop("properties", {})}
    return {
        "topic": full(topic),
        "type": "Kafka",
        "region": "us-west1",
        "target": target,
        "properties": properties,
        "auth_plugin": None,
        "credentials": None,
        **more,
    }


class Replicated(World):
    """See the module's text."""

    def replicate(self, name: str, topic: str, bootstrap: str, target: str, **more: Any) -> str:
        self.client.create(name, "replicator", replicator(topic, bootstrap, target, **more))
        return name

    def write_with_headers(self, topic: str, count: int) -> None:
        """The next `count` numbers with a key and headers each, acknowledged when this returns."""
        first = self._sent[topic]
        for number in range(first, first + count):
            headers: list[tuple[str, str | bytes | None]] = [
                ("number", b"%d" % number),
                ("odd", None if number % 2 else b"\xff"),
            ]
            while True:
                try:
                    self._producer.produce(topic, b"%d" % number, b"k%d" % (number % KEYS), headers=headers)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(PATIENCE_S) == 0
        self._sent[topic] = first + count

    def consumers(self, name: str, topic: str, partitions: int) -> int | None:
        """How many consumers the replicator's subscription has on each partition; None while it is not on all of
        them (while the server makes it, the answer may be 404).
        """
        subscription = self.get(name).subscription
        found = set()
        for number in range(partitions):
            part = f"{topic}-partition-{number}" if partitions > 1 else topic
            url = f"{self.server.http_url}/admin/v2/persistent/public/default/{part}/stats"
            one = None
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(url) as answer:
                one = json.load(answer)["subscriptions"].get(subscription)
            found.add(None if one is None else len(one["consumers"]))
        return found.pop() if len(found) == 1 else None


def copied(bootstrap: str, topic: str) -> list[Copied]:
    """What a consumer of committed records sees of a topic now, of each partition in order."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        left = set(consumer.list_topics(topic, 60).topics[topic].partitions)
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in left])
        found: list[Copied] = []
        while left:
            message = consumer.poll(60)
            assert message is not None, f"the end of partitions {left} did not come"
            error = message.error()
            if error is None:
                headers: Any = message.headers() or ()
                found.append((message.key(), message.value(), tuple(headers)))
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
        return found
    finally:
        consumer.close()


def numbers_by_key(found: list[Copied]) -> Mapping[bytes, list[int]]:
    """Of each key its numbers, each where it came first."""
    by_key: dict[bytes, dict[int, None]] = defaultdict(dict)
    for key, value, _ in found:
        by_key[key or b""].setdefault(int(value or b"-1"))
    return {key: list(numbers) for key, numbers in by_key.items()}


def expected(count: int) -> Mapping[bytes, list[int]]:
    return {b"k%d" % key: list(range(key, count, KEYS)) for key in range(min(KEYS, count))}
