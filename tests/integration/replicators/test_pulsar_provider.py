"""The provider `Pulsar`, as a task uses it, and a real server as its target; pulsar-client reads that."""

import itertools
import json
import logging
import os
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.replicators.errors import (
    CredentialsRefused,
    PoisonRecords,
    ReplicatorConfigError,
    TargetUnavailable,
)
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer
from magnetar.replicators.pulsar.provider import PulsarProvider
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.pulsar_auth.test_pulsar_auth import Guarded

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SOURCE = "persistent://public/default/orders"
_names = itertools.count()


class Target:
    """One topic of a server, in a namespace of its own."""

    def __init__(self, server: MagnetarProcess, partitions: int = 0, *, deduplicates: bool = False) -> None:
        self.server = server
        namespace = f"public/replicas-{os.getpid()}-{next(_names)}"
        self._put(f"/admin/v2/namespaces/{namespace}", None)
        if deduplicates:
            self._put(f"/admin/v2/namespaces/{namespace}/deduplication", True, method="POST")
        self.topic = f"persistent://{namespace}/target"
        if partitions:
            self._put(f"/admin/v2/persistent/{namespace}/target/partitions", partitions)

    def _put(self, path: str, body: Any, method: str = "PUT") -> None:
        content = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server.http_url}{path}", content, method=method)
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()

    @contextmanager
    def producer(self, **properties: Any) -> Iterator[ReplicatorProducer]:
        given = {"serviceUrl": self.server.pulsar_url, **properties}
        policies = ReplicatorPolicies("r", given, {"orders": self.topic}, replicator_id="1")
        provider = PulsarProvider()
        provider.validate_properties("public/default", policies)
        made = provider.create_producer(SOURCE, policies)
        try:
            yield made
        finally:
            made.close()

    def messages(self, count: int | None) -> list[pulsar.Message]:
        """The first `count` messages, and that there are no more; without a count all that there are."""
        silent = logging.getLogger("silent")
        silent.setLevel(logging.CRITICAL + 1)
        client = pulsar.Client(self.server.pulsar_url, logger=silent)
        consumer = client.subscribe(
            self.topic, f"check-{next(_names)}", initial_position=pulsar.InitialPosition.Earliest
        )
        if count is None:
            last = consumer.get_last_message_id()
            found = [consumer.receive(30_000)]
            while found[-1].message_id() < last:
                found.append(consumer.receive(30_000))
        else:
            found = [consumer.receive(30_000) for _ in range(count)]
        with pytest.raises(pulsar.Timeout):
            consumer.receive(300)
        client.close()
        return found


def record(offset: int, value: bytes | None = b"v", partition: int = 0, **more: Any) -> ReplicatedRecord:
    fields = {"timestamp_ms": 1_000 + offset, "key": b"k", "value": value, **more}
    return ReplicatedRecord(partition, offset, **fields)


def numbered(first: int, end: int) -> list[ReplicatedRecord]:
    return [record(offset, b"%d" % offset) for offset in range(first, end)]


def deliver(producer: ReplicatorProducer, records: Sequence[ReplicatedRecord]) -> None:
    producer.send(records)
    producer.flush()


def test_keys_values_properties_and_times_arrive(server: MagnetarProcess) -> None:
    target = Target(server)
    with target.producer(compressionType="ZSTD", replicatedFrom="here", batchingEnabled="true") as producer:
        deliver(
            producer,
            [
                record(5, b"value", key=b"key", headers=[("a", b"1"), ("a", b"\xfe"), ("none", None)]),
                record(7, b"", key=b"\xff\x00"),
                record(8, b"x", key=None),
            ],
        )
    first, second, third = target.messages(3)
    assert (first.data(), first.partition_key(), first.event_timestamp()) == (b"value", "key", 1005)
    assert first.properties() == {
        "a": "1",
        "a;1;base64": "/g==",
        "none;0;null": "",
        "replicated_from": "here",
    }
    assert (second.data(), second.partition_key()) == (b"", "/wA=")
    assert (third.data(), third.partition_key()) == (b"x", "")


def test_partitions_keep_their_numbers_and_their_order(server: MagnetarProcess) -> None:
    target = Target(server, 2)
    with target.producer() as producer:
        for partition in range(2):
            producer.send([record(n, b"%d-%d" % (partition, n), partition) for n in range(500)])
        producer.flush()
    found: dict[str, list[bytes]] = {}
    for message in target.messages(1000):
        found.setdefault(message.topic_name().rpartition("-")[2], []).append(message.data())
    assert found == {str(number): [b"%d-%d" % (number, n) for n in range(500)] for number in range(2)}


def test_a_target_that_deduplicates_has_each_record_once(server: MagnetarProcess) -> None:
    target = Target(server, deduplicates=True)
    with target.producer() as producer:
        deliver(producer, numbered(0, 100))
    with target.producer() as producer:
        deliver(producer, numbered(50, 150))
    assert [message.data() for message in target.messages(150)] == [b"%d" % n for n in range(150)]


def test_a_target_that_deduplicates_loses_nothing_of_batches_either(server: MagnetarProcess) -> None:
    """Of a batch the target looks at the first sequence id alone: if it has seen that, it drops all of the batch."""
    target = Target(server, deduplicates=True)
    with target.producer(batchingEnabled="true") as producer:
        deliver(producer, numbered(0, 100))
    with target.producer(batchingEnabled="true") as producer:
        deliver(producer, numbered(0, 150))
    found = dict.fromkeys(int(message.data()) for message in target.messages(None))
    assert list(found) == list(range(150))


def test_what_came_by_replication_is_not_sent_on(server: MagnetarProcess) -> None:
    target = Target(server)
    with target.producer() as producer:
        deliver(producer, [record(0, b"a"), record(1, b"b", headers=[("replicated_from", b"there")])])
    assert [message.data() for message in target.messages(1)] == [b"a"]


def test_a_record_that_is_too_large_is_poison_and_the_others_arrive(server: MagnetarProcess) -> None:
    target = Target(server)
    with target.producer() as producer:
        producer.send([record(0, b"a"), record(1, os.urandom(6 << 20)), record(2, b"c")])
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
        deliver(producer, [record(3, b"d")])
    assert [one.offset for one, _ in caught.value.records] == [1]
    assert [message.data() for message in target.messages(3)] == [b"a", b"c", b"d"]


def test_a_port_that_refuses_is_said() -> None:
    [port] = free_ports(1)
    policies = ReplicatorPolicies("r", {"serviceUrl": f"pulsar://127.0.0.1:{port}"}, {"orders": "x"})
    with pytest.raises(TargetUnavailable):
        PulsarProvider().create_producer(SOURCE, policies)


def test_a_token_lets_records_in_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    with MagnetarProcess(settings=guarded.settings) as server:
        given = {"serviceUrl": server.pulsar_url}

        def opened(token: str) -> ReplicatorProducer:
            policies = ReplicatorPolicies("r", given, {"orders": "by-token"}, credentials={"token": token})
            return PulsarProvider().create_producer(SOURCE, policies)

        producer = opened(guarded.token("alice"))
        deliver(producer, [record(0)])
        producer.close()
        with pytest.raises(CredentialsRefused, match="Failed to authenticate") as caught:
            opened("wrong-Zk3qPv9xT7")
        assert "wrong-Zk3qPv9xT7" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "credentials", "said"),
    [
        ({}, None, "needs the property serviceUrl"),
        ({"serviceUrl": "http://x:8080"}, None, "serviceUrl must be pulsar://host:port"),
        ({"serviceUrl": "pulsar://x:6650", "compressionType": "zstd"}, None, "one of NONE, LZ4"),
        ({"serviceUrl": "pulsar://x:6650", "tlsTrustCertsFilePath": "/x"}, None, "has no property"),
        ({"serviceUrl": "pulsar://x:6650"}, {"tokenFile": "/x"}, "are token, each a text"),
    ],
)
def test_what_is_wrong_is_named(
    properties: dict[str, Any], credentials: dict[str, Any] | None, said: str
) -> None:
    policies = ReplicatorPolicies("r", properties, {"orders": "x"}, credentials=credentials)
    with pytest.raises(ReplicatorConfigError) as caught:
        PulsarProvider().validate_properties("public/default", policies)
    assert said in str(caught.value)


def test_processes_that_send_a_partition_in_turn_do_not_keep_its_name_from_each_other(
    server: MagnetarProcess,
) -> None:
    target = Target(server, 2, deduplicates=True)
    with target.producer() as one, target.producer() as other:
        for turn in range(6):
            producer = (one, other)[turn % 2]
            producer.send([record(turn, b"%d" % turn)])
            producer.flush()
    assert [message.data() for message in target.messages(6)] == [b"%d" % turn for turn in range(6)]
