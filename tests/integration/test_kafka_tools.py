"""Kafka's tools for offsets, streams groups and clients' metrics."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.class_archives import kafka_tool
from tests.integration.java_tools import KafkaTools, needs_java, run

pytestmark = needs_java

GET = "org.apache.kafka.tools.GetOffsetShell"
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
STREAMS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
TIMEOUT_S = 60
MARCH_MS = 1_772_323_200_000


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        for made in admin.create_topics([NewTopic("orders", 2, 1), NewTopic("other", 1, 1)]).values():
            made.result(TIMEOUT_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": started.bootstrap})
        for number in range(30):
            producer.produce("orders", b"%d" % number, partition=number % 3 // 2, timestamp=MARCH_MS + number)
        assert producer.flush(TIMEOUT_S) == 0
        yield started


def test_offsets_are_told_by_time_and_records_are_deleted_below_one(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    tool = kafka_tools.run
    wanted = {
        "version": 1,
        "partitions": [
            {"topic": "orders", "partition": 0, "offset": 7},
            {"topic": "orders", "partition": 1, "offset": -1},
        ],
    }
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    assert tool(GET) == "orders:0:20\norders:1:10\nother:0:0\n"
    assert tool(GET, "--topic", "orders", "--time", str(MARCH_MS + 15)) == "orders:0:10\norders:1:5\n"
    deleted = tool(DELETE, "--offset-json-file", str(file))
    assert "partition: orders-0\tlow_watermark: 7" in deleted
    assert "partition: orders-1\tlow_watermark: 10" in deleted
    earliest = tool(GET, "--topic-partitions", "orders:0-2", "--time", "earliest")
    assert earliest == "orders:0:7\norders:1:10\n"
    assert tool(STREAMS, "--list") == ""
    described = tool(STREAMS, "--describe", "--group", "g", code=1)
    assert "There is no such group." in described


def exposed(server: MagnetarProcess) -> list[str]:
    with urllib.request.urlopen(f"{server.http_url}/metrics") as page:
        lines: list[str] = page.read().decode().splitlines()
    return [line for line in lines if line.startswith("magnetar_client_metric{")]


def wait_for(server: MagnetarProcess, *words: str) -> None:
    """Until a line of the clients' metrics has all of these."""
    deadline = time.monotonic() + TIMEOUT_S
    while not any(all(word in line for word in words) for line in exposed(server)):
        assert time.monotonic() < deadline, (words, exposed(server)[:20])
        time.sleep(0.1)


def test_clients_push_the_metrics_that_the_tool_asks_them_for(
    server: MagnetarProcess, kafka_tools: KafkaTools
) -> None:
    tool = kafka_tools.run
    metrics = "org.apache.kafka.producer.connection.,org.apache.kafka.producer.record."
    tool(METRICS, "--alter", "--name", "s", "--metrics", metrics, "--interval", "200")
    assert tool(METRICS, "--list") == "s\n"
    described = tool(METRICS, "--describe", "--name", "s")
    assert "interval.ms=200" in described
    assert f"metrics={metrics}" in described
    # In a JVM of its own, at whose end it tells.
    wrote = ["--topic", "orders", "--max-messages", "60", "--throughput", "20"]
    told = run([*kafka_tool(), PRODUCER, "--bootstrap-server", server.bootstrap, *wrote])
    assert '"acked":60' in told
    # The Java producer has pushed when it was closed; it has ended, and what it said is still there.
    wait_for(server, "org.apache.kafka.producer.", 'client_id="producer-1"')
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "client.id": "librdkafka"})
    producer.produce("orders", b"x")
    assert producer.flush(TIMEOUT_S) == 0
    wait_for(server, "org.apache.kafka.producer.connection.creation.total", 'client_id="librdkafka"')
    tool(METRICS, "--delete", "--name", "s")
    assert tool(METRICS, "--list") == "\n"
