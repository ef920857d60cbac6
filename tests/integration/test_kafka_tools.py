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
from tests.integration.java_tools import needs_java, run_kafka, run_kafka_tools

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
    server: MagnetarProcess, tmp_path: Path
) -> None:
    wanted = {
        "version": 1,
        "partitions": [
            {"topic": "orders", "partition": 0, "offset": 7},
            {"topic": "orders", "partition": 1, "offset": -1},
        ],
    }
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    latest, at_15, deleted, earliest, listed, described = run_kafka_tools(
        server,
        [
            [GET],
            [GET, "--topic", "orders", "--time", str(MARCH_MS + 15)],
            [DELETE, "--offset-json-file", str(file)],
            [GET, "--topic-partitions", "orders:0-2", "--time", "earliest"],
            [STREAMS, "--list"],
            [STREAMS, "--describe", "--group", "g"],
        ],
    )
    assert latest == (0, "orders:0:20\norders:1:10\nother:0:0\n")
    assert at_15 == (0, "orders:0:10\norders:1:5\n")
    assert deleted[0] == 0
    assert "partition: orders-0\tlow_watermark: 7" in deleted[1]
    assert "partition: orders-1\tlow_watermark: 10" in deleted[1]
    assert earliest == (0, "orders:0:7\norders:1:10\n")
    assert listed == (0, "")
    # There are no groups of the streams protocol (KIP-1071), and clients are told so before they ask for one.
    assert described[0] == 1
    assert "The node does not support STREAMS_GROUP_DESCRIBE" in described[1]


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


def test_clients_push_the_metrics_that_the_tool_asks_them_for(server: MagnetarProcess) -> None:
    metrics = "org.apache.kafka.producer.connection.,org.apache.kafka.producer.record."
    altered, listed, described = run_kafka_tools(
        server,
        [
            [METRICS, "--alter", "--name", "s", "--metrics", metrics, "--interval", "200"],
            [METRICS, "--list"],
            [METRICS, "--describe", "--name", "s"],
        ],
    )
    assert (altered[0], listed) == (0, (0, "s\n")), altered
    assert "interval.ms=200" in described[1]
    assert f"metrics={metrics}" in described[1]
    assert '"acked":60' in run_kafka(
        server, PRODUCER, "--topic", "orders", "--max-messages", "60", "--throughput", "20"
    )
    # The Java producer has pushed when it was closed; it has ended, and what it said is still there.
    wait_for(server, "org.apache.kafka.producer.", 'client_id="producer-1"')
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "client.id": "librdkafka"})
    producer.produce("orders", b"x")
    assert producer.flush(TIMEOUT_S) == 0
    wait_for(server, "org.apache.kafka.producer.connection.creation.total", 'client_id="librdkafka"')
    deleted, left = run_kafka_tools(server, [[METRICS, "--delete", "--name", "s"], [METRICS, "--list"]])
    assert (deleted[0], left) == (0, (0, "\n")), deleted
