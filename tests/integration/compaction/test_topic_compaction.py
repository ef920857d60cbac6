"""Pulsar's topic compaction by its clients and tools, on a real server: what readers get, and what survives."""

import itertools
import json
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

TIMEOUT_S = 60
_names = itertools.count()
Found = tuple[str, bytes, tuple[int, int, int]]


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"brokerServiceCompactionMonitorIntervalInSeconds": "1"}) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


@pytest.fixture
def client(server: MagnetarProcess) -> Iterator[pulsar.Client]:
    found = client_of(server)
    yield found
    found.close()


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/compact-{next(_names)}"


def client_of(server: MagnetarProcess) -> pulsar.Client:
    return pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def rest(server: MagnetarProcess, method: str, topic: str, what: str, body: str | None = None) -> Any:
    url = f"{server.http_url}/admin/v2/{topic.replace('://', '/')}{what and '/'}{what}"
    data = None if body is None else body.encode()
    request = urllib.request.Request(url, data, method=method, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def compact(server: MagnetarProcess, topic: str) -> None:
    rest(server, "PUT", topic, "compaction")
    wait_for(server, topic, "SUCCESS")


def wait_for(server: MagnetarProcess, topic: str, status: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (found := rest(server, "GET", topic, "compaction"))["status"] != status:
        assert found["status"] in ("RUNNING", "NOT_RUN"), found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def read(
    client: pulsar.Client, topic: str, *, compacted: bool = True, start: Any = pulsar.MessageId.earliest
) -> list[Found]:
    """What a reader gets until there is no more."""
    reader = client.create_reader(topic, start, is_read_compacted=compacted)
    found = []
    while reader.has_message_available():
        message = reader.read_next(TIMEOUT_S * 1000)
        where = message.message_id()
        position = (where.ledger_id(), where.entry_id(), where.batch_index())
        found.append((message.partition_key(), message.data(), position))
    reader.close()
    return found


def test_readers_and_table_views_get_the_last_value_of_each_key(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    chance = random.Random(topic)
    last: dict[str, bytes] = {}
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(400):
        key, value = f"k{chance.randrange(30)}", b"%d" % number if chance.random() < 0.9 else b""
        producer.send_async(value, lambda result, where: None, partition_key=key)
        last[key] = value
    producer.flush()
    producer.send(b"no key")
    whole = read(client, topic, compacted=False)
    compact(server, topic)
    expected = {key: value for key, value in last.items() if value}
    found = read(client, topic)
    assert {key: value for key, value, _ in found} == expected
    assert len(found) == len(expected)
    assert set(found) <= set(whole), "under their own message ids"
    assert read(client, topic, compacted=False) == whole, "the log is as it was"
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in last} == {key: expected.get(key) for key in last}
    view.close()
    producer.send(b"newer", partition_key="k1")
    assert read(client, topic)[len(found) :] == [
        ("k1", b"newer", read(client, topic, compacted=False)[-1][2])
    ]


def test_a_reader_goes_on_from_an_id_that_is_gone_and_a_consumer_from_where_it_was(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number, partition_key=f"k{number % 3}") for number in range(9)]
    consumer = client.subscribe(
        topic, "s", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
    )
    consumer.close()
    compact(server, topic)
    assert [value for _, value, _ in read(client, topic, start=ids[2])] == [b"6", b"7", b"8"]
    assert [value for _, value, _ in read(client, topic, start=ids[6])] == [b"7", b"8"]
    consumer = client.subscribe(topic, "s", is_read_compacted=True)
    for value in (b"6", b"7"):
        message = consumer.receive(TIMEOUT_S * 1000)
        assert message.data() == value
        consumer.acknowledge(message)
    consumer.close()
    consumer = client.subscribe(topic, "s", is_read_compacted=True)
    assert consumer.receive(TIMEOUT_S * 1000).data() == b"8"
    consumer.seek(pulsar.MessageId.earliest)
    assert consumer.receive(TIMEOUT_S * 1000).data() == b"6"
    consumer.close()
    assert rest(server, "GET", topic, "stats")["subscriptions"]["s"]["msgBacklog"] > 0


def test_batches_keep_the_messages_that_are_left_for_consumers_that_acknowledge(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(20):
        producer.send_async(
            b"%d" % number, lambda result, where: None, partition_key=f"k{number % 4 if number < 19 else 9}"
        )
    producer.flush()
    compact(server, topic)
    consumer = client.subscribe(
        topic, "s", is_read_compacted=True, initial_position=pulsar.InitialPosition.Earliest
    )
    for value in (b"15", b"16", b"17", b"18", b"19"):
        message = consumer.receive(TIMEOUT_S * 1000)
        assert message.data() == value
        consumer.acknowledge(message)
    consumer.close()
    assert rest(server, "GET", topic, "stats")["subscriptions"]["s"]["msgBacklog"] == 0
    assert {value for _, value, _ in read(client, topic) if value} == {b"15", b"16", b"17", b"18", b"19"}


def test_what_kafka_clients_wrote_counts_by_its_keys(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    local = topic.rpartition("/")[2]
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(local, 1, 1)])[local].result(TIMEOUT_S)
    kafka = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": local})
    kafka.init_transactions(TIMEOUT_S)
    for value, commits in ((b"1", True), (b"2", True), (b"3", False)):
        kafka.begin_transaction()
        kafka.produce(local, value, b"a")
        kafka.produce(local, value, b"kafka-" + value)
        kafka.produce(local, None, b"kafka-1") if value == b"2" else None
        kafka.flush()
        (kafka.commit_transaction if commits else kafka.abort_transaction)(TIMEOUT_S)
    partition = f"{topic}-partition-0"
    producer = client.create_producer(partition, batching_enabled=False)
    producer.send(b"4", partition_key="b")
    compact(server, partition)
    found = [(key, value) for key, value, _ in read(client, partition) if value]
    assert found == [("a", b"2"), ("kafka-2", b"2"), ("b", b"4")]


def test_a_topic_that_starts_inside_a_batch_is_compacted_to_its_end(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    """The run failed, or wrote the same ledger again and again, with compiled code, for which large topics wait."""
    large = client.create_producer(f"{topic}-large", batching_enabled=False)
    for number in range(9):
        large.send(random.randbytes(1_000_000), partition_key=str(number))
    compact(server, f"{topic}-large")
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    name, partition = topic.rpartition("/")[2], f"{topic}-partition-0"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 1000})

    def send(keys: range) -> None:
        """All in one batch."""
        for number in keys:
            producer.produce(name, b"value", b"%d" % number)
        assert producer.flush(TIMEOUT_S) == 0

    for keys in (range(10), range(10, 20)):
        send(keys)
        begin = TopicPartition(name, 0, keys[5])
        admin.delete_records([begin])[begin].result(TIMEOUT_S)
        compact(server, partition)
    found = [key for key, _, _ in read(client, partition)]
    assert found[-10:] == [str(number) for number in range(10, 20)]


def test_what_is_left_outlives_the_log_a_kill_and_a_look_by_the_doctor(topic: str) -> None:
    with MagnetarProcess() as server:
        client = client_of(server)
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(50):
            producer.send(b"%d" % number, partition_key=f"k{number % 5}")
        compact(server, topic)
        expected = read(client, topic)
        assert len(expected) == 5
        client.close()
        server.kill()
        server.restart()
        client = client_of(server)
        assert rest(server, "GET", topic, "compaction")["status"] == "NOT_RUN", "since the start"
        assert read(client, topic) == expected
        rest(server, "DELETE", topic, "truncate")
        assert read(client, topic, compacted=False) == []
        assert read(client, topic) == expected
        client.close()
        server.kill()
        command = [sys.executable, "-m", "magnetar", "doctor", "--data-dir", str(server.data_dir)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stdout
        assert "belong to no topic" not in told.stdout
        server.restart()
        client = client_of(server)
        assert read(client, topic) == expected
        client.create_producer(topic).send(b"new", partition_key="k1")
        compact(server, topic)
        assert {value for _, value, _ in read(client, topic) if value} == {b"45", b"47", b"48", b"49", b"new"}
        client.close()
        rest(server, "DELETE", topic, "")
        server.kill()
        told = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert "belong to no topic" not in told.stdout
        server.restart()


def test_a_threshold_compacts_a_topic_that_grows(
    server: MagnetarProcess, client: pulsar.Client, topic: str
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    rest(server, "POST", topic, "compactionThreshold", "5000")
    for number in range(60):
        producer.send(b"%d" % number * 50, partition_key="k")
    wait_for(server, topic, "SUCCESS")
    assert len(read(client, topic)) < 60


@pytest.mark.parametrize("_", [pytest.param(0, marks=needs_java)])
def test_the_real_admin_tool_compacts_and_sets_thresholds(
    server: MagnetarProcess, client: pulsar.Client, topic: str, _: int
) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(3):
        producer.send(b"%d" % number, partition_key="k")
    namespace = "public/default"
    asked = run_pulsar_shell(
        server, [f"admin topics {verb} {topic}" for verb in ("compaction-status", "compact")]
    )
    wait_for(server, topic, "SUCCESS")
    outputs = asked + run_pulsar_shell(
        server,
        [
            f"admin {command}"
            for command in (
                f"topics compaction-status --wait-complete {topic}",
                f"topics stats-internal {topic}",
                f"topics stats {topic}",
                f"namespaces set-compaction-threshold {namespace} --threshold 10M",
                f"namespaces get-compaction-threshold {namespace}",
                f"topicPolicies get-compaction-threshold --applied {topic}",
                f"topicPolicies set-compaction-threshold --threshold 20M {topic}",
                f"topicPolicies get-compaction-threshold {topic}",
                f"topicPolicies remove-compaction-threshold {topic}",
                f"topicPolicies get-compaction-threshold {topic}",
                f"namespaces remove-compaction-threshold {namespace}",
                f"namespaces get-compaction-threshold {namespace}",
            )
        ],
    )
    assert outputs[0] == f"Compaction has not been run for {topic} since broker startup"
    assert outputs[1] == f"Topic compaction requested for {topic}"
    assert outputs[2] == "Compaction was a success"
    internal, stats = json.loads(outputs[3]), json.loads(outputs[4])
    assert internal["compactedLedger"]["entries"] == 1
    assert list(internal["cursors"]) == ["__compaction"]
    assert stats["compaction"]["lastCompactionRemovedEventCount"] == 2
    assert outputs[6:8] == [str(10 << 20)] * 2
    assert outputs[9] == str(20 << 20)
    assert outputs[11] == outputs[13] == "null"
    assert [value for _, value, _ in read(client, topic)] == [b"2"]
