"""The admin API beside real clients: one position for both protocols, and clients that come in over HTTP."""

import json
import urllib.request
from typing import Any

import confluent_kafka
import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record

from magnetar.testing.server import MagnetarProcess

pytestmark = pytest.mark.clients


class Point(Record):  # type: ignore[misc]  # pulsar-client has no types
    x = Integer()


def ask(server: MagnetarProcess, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    json_body = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.http_url}/admin/v2{path}", data, json_body, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        content = response.read()
    return json.loads(content) if content else None


def test_a_groups_lag_is_its_subscriptions_backlog_and_both_are_moved_by_the_admin_api() -> None:
    with MagnetarProcess() as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        for index in range(10):
            producer.produce("t", b"%d" % index, partition=0)
        assert producer.flush(30) == 0
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "g", "enable.auto.commit": False}
        group = confluent_kafka.Consumer(settings)
        where = confluent_kafka.TopicPartition("t", 0, 4)
        group.commit(offsets=[where], asynchronous=False)
        topic = "/persistent/public/default/t-partition-0"
        assert ask(server, "GET", f"{topic}/stats")["subscriptions"]["g"]["msgBacklog"] == 6
        ask(server, "POST", f"{topic}/subscription/g/skip/2")
        assert group.committed([where], timeout=30)[0].offset == 6
        ask(server, "POST", f"{topic}/subscription/g/resetcursor", {"ledgerId": -1, "entryId": -1})
        assert group.committed([where], timeout=30)[0].offset == 0
        group.close()
        server.kill()
        server.restart()
        assert ask(server, "GET", f"{topic}/stats")["subscriptions"]["g"]["msgBacklog"] == 10


def test_a_client_with_an_http_url_finds_its_topic_and_its_schema() -> None:
    with MagnetarProcess() as server:
        ask(server, "PUT", "/persistent/public/default/p/partitions", 2)
        client = pulsar.Client(server.http_url)
        consumer = client.subscribe("p", "s", schema=AvroSchema(Point))
        producer = client.create_producer("p", schema=AvroSchema(Point))
        producer.send(Point(x=5))
        message = consumer.receive(30_000)
        assert message.value().x == 5
        consumer.acknowledge(message)
        client.close()
        shown = ask(server, "GET", "/schemas/public/default/p/schema")
        assert (shown["version"], shown["type"]) == (0, "AVRO")
        stats = ask(server, "GET", "/persistent/public/default/p/partitioned-stats")
        assert (stats["msgInCounter"], stats["subscriptions"]["s"]["msgBacklog"]) == (1, 0)
