"""Kafka's own tools and its Java share consumers (KIP-932)."""

import json
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import KafkaTools, needs_java

pytestmark = needs_java

GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableShareConsumer"


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            future.result(30)
        producer = confluent_kafka.Producer({"bootstrap.servers": started.bootstrap})
        for number in range(100):
            producer.produce("orders", f"order {number}".encode())
        assert producer.flush(30) == 0
        yield started


def test_a_group_lives_from_its_first_record_to_its_end(kafka_tools: KafkaTools) -> None:
    run = kafka_tools.run
    earliest = ["--add-config", "share.auto.offset.reset=earliest"]
    run(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", "g", *earliest)
    shown = run(CONFIGS, "--describe", "--entity-type", "groups", "--entity-name", "g")
    assert "share.auto.offset.reset=earliest" in shown
    first = run(CONSOLE, "--topic", "orders", "--group", "g", "--max-messages", "40")
    rest = run(VERIFIABLE, "--topic", "orders", "--group-id", "g", "--max-messages", "60")
    events = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
    accepted = sum(one["count"] for one in events if one["name"] == "records_consumed")
    assert len(first.splitlines()) == 40
    assert accepted == 60
    assert "g " in run(GROUPS, "--list", "--state") + " "
    offsets = run(GROUPS, "--describe", "--group", "g", "--offsets")
    rows = [line.split() for line in offsets.splitlines() if line.startswith("g")]
    assert sorted(row[2] for row in rows) == ["0", "1"]
    assert sum(int(row[3]) for row in rows) == 100, offsets
    topic = ["--group", "g", "--topic", "orders"]
    run(GROUPS, "--reset-offsets", *topic, "--to-earliest", "--execute")
    again = run(CONSOLE, "--topic", "orders", "--group", "g", "--max-messages", "100")
    assert {*first.splitlines()} < {*again.splitlines()}
    run(GROUPS, "--delete-offsets", *topic)
    run(GROUPS, "--delete", "--group", "g")
    assert "g" not in run(GROUPS, "--list").splitlines()
