"""Namespaces of a resource group share its rates, over both doors; pulsar-admin makes, shows and deletes groups."""

import json
import threading
import time
from collections.abc import Iterator

import confluent_kafka
import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask
from tests.integration.java_tools import needs_java, run_pulsar_shell

RATE = 20
COUNT = 40  # of each of two, together with a second's worth at once
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        yield one
        assert "Traceback" not in one.log


def admin(server: MagnetarProcess, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    content = json.dumps(body).encode() if body is not None else None
    return ask(f"{server.http_url}/admin/v2/{path}", JSON, method=method, body=content)


def grouped(server: MagnetarProcess, group: str, **rates: int) -> list[str]:
    """Two topics in two namespaces that are in a new group."""
    assert admin(server, "PUT", f"resourcegroups/{group}", rates)[0] == 204
    topics = []
    for number in range(2):
        namespace = f"public/{group}-{number}"
        assert admin(server, "PUT", f"namespaces/{namespace}", {})[0] == 204
        assert admin(server, "POST", f"namespaces/{namespace}/resourcegroup/{group}")[0] == 204
        topics.append(f"persistent://{namespace}/t")
    return topics


@pytest.mark.clients
def test_producers_of_both_protocols_share_the_publish_rate(server: MagnetarProcess) -> None:
    by_kafka, by_pulsar = grouped(server, "published", publishRateInMsgs=RATE)
    client = pulsar.Client(server.pulsar_url)
    kafka = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    mine = client.create_producer(by_pulsar)
    began_s = time.monotonic()

    def publish() -> None:
        for number in range(COUNT):
            mine.send(b"%d" % number)

    beside = threading.Thread(target=publish)
    beside.start()
    for number in range(COUNT):
        kafka.produce(by_kafka, b"%d" % number)
        assert kafka.flush(30) == 0
    beside.join()
    assert time.monotonic() - began_s > (2 * COUNT - RATE - 4) / RATE, "one of them alone is half of this"
    client.close()


@pytest.mark.clients
def test_consumers_of_both_protocols_share_the_dispatch_rate(server: MagnetarProcess) -> None:
    topics = grouped(server, "dispatched")
    client = pulsar.Client(server.pulsar_url)
    for topic in topics:
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(COUNT):
            producer.send_async(b"%d" % number, None)
        producer.flush()
    assert admin(server, "PUT", "resourcegroups/dispatched", {"dispatchRateInMsgs": RATE})[0] == 204
    by_kafka, by_pulsar = topics
    began_s = time.monotonic()
    reader = client.create_reader(by_pulsar, pulsar.MessageId.earliest)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(by_kafka, 0, 0)])
    got: list[bytes] = []

    def read() -> None:
        got.extend(reader.read_next(30_000).data() for _ in range(COUNT))

    beside = threading.Thread(target=read)
    beside.start()
    mine: list[bytes | None] = []
    while len(mine) < COUNT:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        mine.append(message.value())
    beside.join()
    assert time.monotonic() - began_s > (2 * COUNT - RATE - 10) / RATE
    assert got == mine == [b"%d" % number for number in range(COUNT)]
    consumer.close()
    client.close()


def test_groups_are_kept_and_what_is_wrong_is_refused(server: MagnetarProcess) -> None:
    topic, _ = grouped(server, "kept", publishRateInMsgs=5, dispatchRateInBytes=7)
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]
    assert (
        admin(server, "PUT", "resourcegroups/kept", {"publishRateInMsgs": 6, "publishRateInBytes": None})[0]
        == 204
    )
    server.kill()
    server.restart()
    assert json.loads(admin(server, "GET", "resourcegroups/kept")[1]) == {
        "publishRateInMsgs": 6,
        "dispatchRateInBytes": 7,
    }
    assert json.loads(admin(server, "GET", f"namespaces/{namespace}/resourcegroup")[1]) == "kept"
    assert json.loads(admin(server, "GET", f"namespaces/{namespace}")[1])["resource_group_name"] == "kept"
    for method, path, body, status, why in (
        ("DELETE", "resourcegroups/kept", None, 412, "in use"),
        ("DELETE", "resourcegroups/none", None, 404, "does not exist"),
        ("GET", "resourcegroups/none", None, 404, "does not exist"),
        ("POST", f"namespaces/{namespace}/resourcegroup/none", None, 412, "does not exist"),
        ("POST", "namespaces/public/none/resourcegroup/kept", None, 404, "does not exist"),
        ("PUT", "namespaces/public/new", {"resource_group_name": "none"}, 412, "does not exist"),
        ("PUT", "namespaces/public/new", {"resource_group_name": 5}, 400, "must be a text"),
        ("PUT", "resourcegroups/kept", {"replicationDispatchRateInMsgs": 1}, 412, "not supported"),
        ("PUT", "resourcegroups/kept", {"publishRateInMsgs": -2}, 412, "from -1"),
        ("PUT", "resourcegroups/kept", {"publishRateInMsgs": 1 << 31}, 412, "from -1"),
        ("PUT", "resourcegroups/kept", {"publishRateInMsgs": True}, 400, "whole number"),
        ("PUT", "resourcegroups/kept", [], 400, "object"),
        ("PUT", "resourcegroups/a%20b", {}, 412, "may have only"),
    ):
        answer = admin(server, method, path, body)
        assert (answer[0], why in answer[1].decode()) == (status, True), (method, path, answer)
    assert json.loads(admin(server, "GET", "resourcegroups/kept")[1])["publishRateInMsgs"] == 6


class TestPulsarAdmin:
    pytestmark = needs_java

    def test_by_pulsar_admin(self, server: MagnetarProcess) -> None:
        commands = [
            "resourcegroups create by-java --msg-publish-rate 100 --byte-dispatch-rate 1048576",
            "resourcegroups get by-java",
            "resourcegroups update by-java --msg-publish-rate 200",
            "resourcegroups list",
            "resourcegroups get by-java",
            "namespaces set-resource-group public/default -rgn by-java",
            "namespaces get-resource-group public/default",
            "namespaces policies public/default",
            "namespaces remove-resource-group public/default",
            "namespaces get-resource-group public/default",
            "resourcegroups delete by-java",
            "resourcegroups list",
        ]
        shown = run_pulsar_shell(server, [f"admin {command}" for command in commands])
        made, changed, policies = (json.loads(shown[number]) for number in (1, 4, 7))
        assert (made["publishRateInMsgs"], made["dispatchRateInBytes"]) == (100, 1048576)
        assert (changed["publishRateInMsgs"], changed["dispatchRateInBytes"]) == (200, 1048576)
        assert "by-java" in shown[3]
        assert "by-java" in shown[6]
        assert policies["resource_group_name"] == "by-java"
        assert "by-java" not in shown[9] + shown[11]
