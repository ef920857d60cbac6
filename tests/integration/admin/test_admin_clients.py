"""Admin clients that we did not write, against a real server."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from magnetar.testing.server import MagnetarProcess

pytestmark = [
    pytest.mark.clients,
    # kafka-python reads its schemas in a way that Python deprecates
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"num.partitions": "4"}, nodes=2) as process:
        yield process


@pytest.fixture(scope="module")
def confluent(server: MagnetarProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


@pytest.fixture(scope="module")
def kafka_python(server: MagnetarProcess) -> Iterator[Any]:
    from kafka.admin import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=server.bootstrap.split(","))
    yield client
    client.close()


def code_of(future: Any) -> str:
    """NONE, or the name of the error that the client got."""
    try:
        future.result(30)
    except KafkaException as error:
        name: str = error.args[0].name()
        return name
    return "NONE"


def setting(client: AdminClient, kind: Any, name: str, key: str) -> str | None:
    [future] = client.describe_configs([ConfigResource(kind, name)]).values()
    value: str | None = future.result(30)[key].value
    return value


def test_librdkafka_makes_grows_and_deletes_topics(confluent: AdminClient) -> None:
    made = confluent.create_topics(
        [NewTopic("c1", -1, -1), NewTopic("c2", 2, 2), NewTopic("c3", 1, 3), NewTopic("bad name", 1, 1)]
    )
    assert {name: code_of(future) for name, future in made.items()} == {
        "c1": "NONE",
        "c2": "NONE",
        "c3": "INVALID_REPLICATION_FACTOR",
        "bad name": "TOPIC_EXCEPTION",
    }
    [again] = confluent.create_topics([NewTopic("c1", 1, 1)]).values()
    assert code_of(again) == "TOPIC_ALREADY_EXISTS"
    assert [code_of(one) for one in confluent.create_partitions([NewPartitions("c1", 6)]).values()] == [
        "NONE"
    ]
    assert [code_of(one) for one in confluent.create_partitions([NewPartitions("c1", 6)]).values()] == [
        "INVALID_PARTITIONS"
    ]
    topics = confluent.list_topics(timeout=30).topics
    assert (len(topics["c1"].partitions), len(topics["c2"].partitions)) == (6, 2)
    assert sorted(topics["c2"].partitions[0].replicas) == [1, 2]
    assert [code_of(one) for one in confluent.delete_topics(["c1", "c2"]).values()] == ["NONE", "NONE"]
    assert [code_of(one) for one in confluent.delete_topics(["c1"]).values()] == ["UNKNOWN_TOPIC_OR_PART"]


def test_librdkafka_reads_and_changes_settings(confluent: AdminClient) -> None:
    [made] = confluent.create_topics([NewTopic("s", 1, 1, config={"retention.ms": "1000"})]).values()
    made.result(30)
    assert setting(confluent, ResourceType.TOPIC, "s", "retention.ms") == "1000"
    change = ConfigResource(
        ResourceType.TOPIC,
        "s",
        incremental_configs=[
            ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    assert [code_of(one) for one in confluent.incremental_alter_configs([change]).values()] == ["NONE"]
    assert setting(confluent, ResourceType.TOPIC, "s", "retention.ms") == "2000"
    assert setting(confluent, ResourceType.TOPIC, "s", "cleanup.policy") == "delete,compact"
    assert setting(confluent, ResourceType.BROKER, "2", "num.partitions") == "4"
    refused = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[ConfigEntry("num.partitions", "5", incremental_operation=AlterConfigOpType.SET)],
    )
    assert [code_of(one) for one in confluent.incremental_alter_configs([refused]).values()] == [
        "INVALID_REQUEST"
    ]


def test_a_new_group_does_not_wait_for_members_by_default(
    server: MagnetarProcess, confluent: AdminClient
) -> None:
    assert setting(confluent, ResourceType.BROKER, "1", "group.initial.rebalance.delay.ms") == "0"


def test_librdkafka_describes_the_cluster_and_topics(server: MagnetarProcess, confluent: AdminClient) -> None:
    cluster = confluent.describe_cluster(request_timeout=30).result()
    assert sorted((node.id, node.port) for node in cluster.nodes) == [
        (1, server.ports[0]),
        (2, server.ports[1]),
    ]
    confluent.create_topics([NewTopic("d", 2, 2)])["d"].result(30)
    described = confluent.describe_topics(TopicCollection(["d"]), request_timeout=30)["d"].result()
    assert [len(partition.isr) for partition in described.partitions] == [2, 2]


def test_records_are_deleted_and_the_lag_shows_it(server: MagnetarProcess, confluent: AdminClient) -> None:
    confluent.create_topics([NewTopic("r", 1, 1)])["r"].result(30)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for index in range(10):
        producer.produce("r", str(index).encode())
    assert producer.flush(30) == 0
    offsets = [ConsumerGroupTopicPartitions("readers", [TopicPartition("r", 0, 2)])]
    confluent.alter_consumer_group_offsets(offsets)["readers"].result(30)
    [deleted] = confluent.delete_records([TopicPartition("r", 0, 4)]).values()
    assert deleted.result(30).low_watermark == 4
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    assert 'kafka_consumergroup_lag{group="readers",partition="0",topic="r"} 6.0' in lines
    name = 'namespace="public/default",topic="persistent://public/default/r-partition-0"'
    assert f"magnetar_log_start_offset{{{name}}} 4.0" in lines
    assert f"magnetar_log_end_offset{{{name}}} 10.0" in lines
    requests = [
        line for line in lines if line.startswith('magnetar_kafka_requests_total{request="delete_records"}')
    ]
    assert len(requests) == 1
    assert float(requests[0].rpartition(" ")[2]) >= 1


def test_health_is_answered_over_http(server: MagnetarProcess) -> None:
    for path in ("/admin/v2/brokers/health", "/admin/v2/brokers/ready"):
        with urllib.request.urlopen(server.http_url + path, timeout=30) as response:
            assert response.read() == b"ok"
    with urllib.request.urlopen(server.http_url + "/health", timeout=30) as response:
        assert json.load(response)["status"] == "ok"
    with urllib.request.urlopen(server.http_url + "/openapi.json", timeout=30) as response:
        assert "/metrics" in json.load(response)["paths"]


def test_kafka_python_makes_describes_and_deletes(kafka_python: Any) -> None:
    from kafka.admin import NewTopic as PyNewTopic

    kafka_python.create_topics([PyNewTopic(name="p", num_partitions=3, replication_factor=2)])
    [described] = kafka_python.describe_topics(["p"])
    assert len(described["partitions"]) == 3
    kafka_python.delete_topics(["p"])
    assert "p" not in kafka_python.list_topics()
    assert len(kafka_python.describe_cluster()["brokers"]) == 2


def test_kafka_python_is_told_which_group_there_is_not(kafka_python: Any) -> None:
    described = kafka_python.describe_groups(["nobody"])["nobody"]
    assert described["group_state"] == "Dead"
    assert "Group nobody not found." in described["error"]


def test_settings_and_topics_are_there_after_a_restart() -> None:
    with MagnetarProcess() as server:
        client = AdminClient({"bootstrap.servers": server.bootstrap})
        client.create_topics([NewTopic("t", 3, 1, config={"segment.ms": "123456"})])["t"].result(30)
        server.restart()
        assert setting(client, ResourceType.TOPIC, "t", "segment.ms") == "123456"
        assert len(client.list_topics(timeout=30).topics["t"].partitions) == 3
        client.delete_topics(["t"])["t"].result(30)
        server.restart()
        assert "t" not in client.list_topics(timeout=30).topics
