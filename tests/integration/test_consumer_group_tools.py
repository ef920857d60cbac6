"""Kafka's own tools and its Java consumer on groups of the consumer protocol (KIP-848)."""

import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import KafkaTools, needs_java

pytestmark = needs_java

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}


class Reader:
    """A consumer that is polled in a thread until it is closed."""

    def __init__(self, bootstrap: str, subscription: list[str], **settings: str) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                **settings,
            }
        )
        self.owned: set[tuple[str, int]] = set()
        self._ends = threading.Event()
        self.consumer.subscribe(subscription, on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _assigned(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.owned |= {(one.topic, one.partition) for one in partitions}

    def _revoked(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.owned -= {(one.topic, one.partition) for one in partitions}

    def _poll(self) -> None:
        while not self._ends.is_set():
            self.consumer.poll(0.1)
        self.consumer.close()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings=SETTINGS) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        topics = [NewTopic("orders-a", 4, 1), NewTopic("orders-b", 2, 1), NewTopic("other", 3, 1)]
        for future in admin.create_topics(topics).values():
            future.result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": started.bootstrap})
        for topic in ("orders-a", "other"):
            producer.produce(topic, b"value of " + topic.encode())
        assert producer.flush(30) == 0
        yield started


@pytest.fixture
def readers(server: MagnetarProcess) -> Iterator[list[Reader]]:
    found = [
        Reader(server.bootstrap, ["^orders-.*"], **{"client.id": "by-pattern"}),
        Reader(server.bootstrap, ["other"], **{"client.id": "by-name", "group.instance.id": "one"}),
    ]
    deadline = time.monotonic() + 30
    while [len(one.owned) for one in found] != [6, 3]:
        assert time.monotonic() < deadline, [one.owned for one in found]
        time.sleep(0.05)
    yield found
    for one in found:
        one.close()


def rows(output: str) -> list[list[str]]:
    """The words of a table's lines, its heading left out."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    return [words for words in lines if words[0] != "GROUP" and not words[0].startswith("Consumer")]


def test_a_group_is_listed_described_and_kept_while_it_has_members(
    kafka_tools: KafkaTools, readers: list[Reader]
) -> None:
    def tool(*arguments: str) -> str:
        return kafka_tools.run(GROUPS, *arguments)

    assert rows(tool("--list", "--type", "consumer", "--state", "stable")) == [["g", "Consumer", "Stable"]]
    assert rows(tool("--list", "--type", "classic", "--state", "stable")) == []
    by_partition = rows(tool("--describe", "--group", "g"))
    assert len(by_partition) == 9
    assert {(words[1], int(words[2])) for words in by_partition} == set.union(*(one.owned for one in readers))
    members = rows(tool("--describe", "--group", "g", "--members", "--verbose"))
    assert {(words[-6], words[-5]) for words in members} == {("by-pattern", "6"), ("by-name", "3")}
    assert {words[-4] for words in members} == {
        words[-2] for words in members
    }  # all have what they are to have
    (state,) = rows(tool("--describe", "--group", "g", "--state", "--verbose"))
    assert "Stable" in state
    assert "uniform" in state
    assert "GroupNotEmptyException" in tool("--delete", "--group", "g")


def test_settings_of_a_group_are_set_and_shown(kafka_tools: KafkaTools) -> None:
    name = "consumer.session.timeout.ms"
    of_group = ("--entity-type", "groups", "--entity-name", "settled")
    kafka_tools.run(CONFIGS, "--alter", *of_group, "--add-config", f"{name}=50000")
    assert f"{name}=50000" in kafka_tools.run(CONFIGS, "--describe", *of_group)
    refused = kafka_tools.run(CONFIGS, "--alter", *of_group, "--add-config", f"{name}=1", code=1)
    assert "InvalidConfigurationException" in refused
    kafka_tools.run(CONFIGS, "--alter", *of_group, "--delete-config", name)
    assert f"{name}=50000" not in kafka_tools.run(CONFIGS, "--describe", *of_group)


def test_the_java_consumer_reads_what_a_pattern_finds(kafka_tools: KafkaTools) -> None:
    output = kafka_tools.run(
        CONSUMER,
        *("--include", "orders.*", "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"),
        *("--command-property", "group.protocol=consumer", "--group", "java"),
    )
    assert "value of orders-a" in output
