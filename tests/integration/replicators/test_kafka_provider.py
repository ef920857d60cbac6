"""The provider `Kafka`, as a task uses it, and a real server as its target; clients that we did not write read that."""

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.replicators.errors import CredentialsRefused, PoisonRecords, TargetUnavailable
from magnetar.replicators.kafka import transactional
from magnetar.replicators.kafka.provider import KafkaProvider
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer
from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.integration.sasl.guarded import Guarded

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SOURCE = "persistent://public/default/orders"
_names = itertools.count()


class Target:
    """One topic of a server."""

    def __init__(self, bootstrap: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self.topic = f"target-{os.getpid()}-{next(_names)}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self.topic, partitions, 1, config=config or {})])[self.topic].result(60)

    @contextmanager
    def producer(self, **properties: Any) -> Iterator[ReplicatorProducer]:
        given = {"bootstrap.servers": self.bootstrap, **properties}
        policies = ReplicatorPolicies("r", given, {"orders": self.topic}, replicator_id="1")
        provider = KafkaProvider()
        provider.validate_properties("public/default", policies)
        made = provider.create_producer(SOURCE, policies)
        try:
            yield made
        finally:
            made.close()

    def messages(self) -> list[ck.Message]:
        """What a consumer of committed records sees of the topic, of each partition in order."""
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found, left = [], set(consumer.list_topics(self.topic, 30).topics[self.topic].partitions)
        consumer.assign([ck.TopicPartition(self.topic, number, 0) for number in left])
        while left:
            message = consumer.poll(60)
            assert message is not None, f"the end of partitions {left} did not come"
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
        consumer.close()
        return sorted(found, key=lambda one: (one.partition() or 0, one.offset() or 0))

    def values(self) -> list[bytes | None]:
        return [message.value() for message in self.messages()]


def record(offset: int, value: bytes | None = b"v", partition: int = 0, **more: Any) -> ReplicatedRecord:
    return ReplicatedRecord(
        partition, offset, **{"timestamp_ms": 1_000 + offset, "key": b"k", "value": value, **more}
    )


def numbered(first: int, end: int) -> list[ReplicatedRecord]:
    return [record(offset, b"%d" % offset) for offset in range(first, end)]


def deliver(producer: ReplicatorProducer, records: Sequence[ReplicatedRecord]) -> None:
    producer.send(records)
    producer.flush()


def in_order_of_arrival(target: Target) -> list[int]:
    """The numbers, each where it came first."""
    return list(dict.fromkeys(int(value or b"-1") for value in target.values()))


def test_keys_values_headers_and_times_arrive_as_they_were(server: MagnetarProcess) -> None:
    target = Target(server.bootstrap)
    sent = [
        record(
            0, b"value", key=b"\xff\x00", headers=[("a", b"1"), ("a", b"\xfe"), ("none", None), ("", b"")]
        ),
        record(1, None, key=b"deleted"),
        record(2, b"", key=None),
        record(3, b"x", key=b""),
    ]
    with target.producer(**{"compression.type": "zstd"}) as producer:
        deliver(producer, sent)
    found = target.messages()
    assert [(one.key(), one.value(), list(one.headers() or ()), one.timestamp()) for one in found] == [
        (one.key, one.value, list(one.headers), (ck.TIMESTAMP_CREATE_TIME, one.timestamp_ms)) for one in sent
    ]


def test_partitions_keep_their_numbers_and_share_where_there_are_fewer(server: MagnetarProcess) -> None:
    same, fewer = Target(server.bootstrap, 3), Target(server.bootstrap, 2)
    for target in (same, fewer):
        with target.producer() as producer:
            for partition in range(3):
                producer.send(
                    [record(offset, b"%d-%d" % (partition, offset), partition) for offset in range(50)]
                )
            producer.flush()
    by_partition: dict[int, list[bytes | None]] = {}
    for message in same.messages():
        by_partition.setdefault(message.partition() or 0, []).append(message.value())
    assert by_partition == {number: [b"%d-%d" % (number, n) for n in range(50)] for number in range(3)}
    in_first = [one.value() or b"" for one in fewer.messages() if one.partition() == 0]
    for source in (b"0-", b"2-"):
        assert [one for one in in_first if one.startswith(source)] == [source + b"%d" % n for n in range(50)]


@pytest.mark.parametrize("properties", [{}, {"transactional.id": "t"}], ids=["idempotent", "transactional"])
def test_what_a_topic_does_not_take_is_poison_and_all_else_arrives_in_order(
    server: MagnetarProcess, properties: dict[str, str]
) -> None:
    target = Target(server.bootstrap, config={"max.message.bytes": "20000"})
    chunk = numbered(0, 300)
    # Random bytes, and so many of them behind each other that one request has several batches.
    chunk[100] = record(100, os.urandom(30_000))
    chunk[200] = record(200, os.urandom(30_000))
    with target.producer(**{"batch.size": "10000", **properties}) as producer:
        producer.send(chunk)
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
        deliver(producer, numbered(300, 310))
    assert [one.offset for one, _ in caught.value.records] == [100, 200]
    assert all("large" in reason.lower() for _, reason in caught.value.records)
    assert in_order_of_arrival(target) == [number for number in range(310) if number not in (100, 200)]


def test_what_shares_a_batch_with_poison_is_not_overtaken(server: MagnetarProcess) -> None:
    """A topic that is compacted takes no record without a key, and refuses the whole batch of one."""
    target = Target(server.bootstrap, config={"cleanup.policy": "compact"})
    chunk = [record(n, b"%d" % n, key=b"%d" % n, headers=[("pad", b"x" * 200)]) for n in range(300)]
    chunk[150] = record(150, b"150", key=None)
    with target.producer(**{"batch.size": "5000", "linger.ms": "50"}) as producer:
        producer.send(chunk)
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
    assert [one.offset for one, _ in caught.value.records] == [150]
    assert in_order_of_arrival(target) == [number for number in range(300) if number != 150]


class TestTransactions:
    """Each record is there once for consumers of committed records, whatever is sent again."""

    def test_a_chunk_that_is_sent_again_is_there_once(self, server: MagnetarProcess) -> None:
        target = Target(server.bootstrap, 2)
        with target.producer(**{"transactional.id": "t"}) as producer:
            deliver(producer, numbered(0, 100))
            deliver(producer, [record(n, b"b%d" % n, 1) for n in range(10)])
        with target.producer(**{"transactional.id": "t"}) as producer:
            deliver(producer, [*numbered(0, 100), *numbered(100, 120)])
            deliver(producer, [record(n, b"b%d" % n, 1) for n in range(12)])
        assert target.values() == [*(b"%d" % n for n in range(120)), *(b"b%d" % n for n in range(12))]

    def test_what_was_sent_and_not_flushed_is_not_there(self, server: MagnetarProcess) -> None:
        target = Target(server.bootstrap)
        with target.producer(**{"transactional.id": "t"}) as producer:
            deliver(producer, numbered(0, 5))
            producer.send(numbered(5, 10))
        with target.producer(**{"transactional.id": "t"}) as producer:
            deliver(producer, numbered(5, 7))
        assert target.values() == [b"%d" % n for n in range(7)]

    def test_one_that_was_taken_over_writes_nothing_any_more(self, server: MagnetarProcess) -> None:
        target = Target(server.bootstrap)
        with target.producer(**{"transactional.id": "t"}) as old:
            deliver(old, numbered(0, 5))
            with target.producer(**{"transactional.id": "t"}) as new:
                deliver(new, numbered(5, 10))
                with pytest.raises(TargetUnavailable):
                    deliver(old, numbered(5, 10))
                deliver(new, numbered(10, 12))
        assert target.values() == [b"%d" % n for n in range(12)]


class TestATargetThatIsAway:
    def test_a_port_that_refuses_is_said_soon(self) -> None:
        [port] = free_ports(1)
        policies = ReplicatorPolicies("r", {"bootstrap.servers": f"127.0.0.1:{port}"}, {"orders": "x"})
        with pytest.raises(TargetUnavailable, match="no broker"):
            KafkaProvider().create_producer(SOURCE, policies)

    def test_a_broker_that_is_killed_fails_the_chunk_and_takes_it_later(self) -> None:
        with MagnetarProcess() as broker:
            target = Target(broker.bootstrap)
            with target.producer() as producer:
                deliver(producer, numbered(0, 10))
                broker.kill()
                producer.send(numbered(10, 20))
                with pytest.raises(TargetUnavailable):
                    producer.flush()
            broker.restart()
            with target.producer() as producer:
                deliver(producer, numbered(10, 20))
            assert target.values() == [b"%d" % n for n in range(20)]

    def test_a_producer_that_was_idle_while_its_broker_restarted_goes_on(self) -> None:
        with MagnetarProcess() as broker:
            target = Target(broker.bootstrap)
            with target.producer() as producer:
                deliver(producer, numbered(0, 10))
                broker.restart()
                deliver(producer, numbered(10, 20))
            assert target.values() == [b"%d" % n for n in range(20)]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    one = Guarded(Authority(tmp_path_factory.mktemp("authority")))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one


class TestCredentials:
    def opened(self, guarded: Guarded, password: str, *, tls: bool) -> ReplicatorProducer:
        properties = {
            "bootstrap.servers": f"localhost:{guarded.sasl_ssl if tls else guarded.sasl}",
            "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            **({"ssl.ca.pem": guarded.authority.certificate.read_text()} if tls else {}),
        }
        secrets = {"sasl.username": "alice", "sasl.password": password}
        policies = ReplicatorPolicies("r", properties, {"orders": "by-login"}, credentials=secrets)
        return KafkaProvider().create_producer(SOURCE, policies)

    @pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
    def test_right_ones_let_records_in(self, guarded: Guarded, tls: bool) -> None:
        producer = self.opened(guarded, "alice-secret", tls=tls)
        try:
            deliver(producer, [record(0)])
        finally:
            producer.close()

    def test_wrong_ones_are_refused_and_not_repeated(self, guarded: Guarded) -> None:
        with pytest.raises(CredentialsRefused) as caught:
            self.opened(guarded, "wrong-secret", tls=False)
        assert "by-login" in str(caught.value)
        assert "wrong-secret" not in str(caught.value)


class _Stuck:
    """A client of librdkafka whose `send_offsets_to_transaction` waits for ever, as it has done after a cut."""

    def __init__(self, producer: ck.Producer, ended: Event) -> None:
        self._producer = producer
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self._ended.wait()


def test_a_client_that_waits_for_ever_is_given_up_and_the_next_one_has_all_once(
    server: MagnetarProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(server.bootstrap)
    ended = Event()
    try:
        with target.producer(**{"transactional.id": "stuck"}) as producer:
            deliver(producer, numbered(0, 3))
            [lane] = producer._lanes.values()  # type: ignore[attr-defined]
            monkeypatch.setattr(transactional, "ANSWER_S", 0.1)
            monkeypatch.setattr(transactional, "LATE_S", 0.1)
            lane._client.producer = _Stuck(lane._client.producer, ended)
            with pytest.raises(TargetUnavailable, match="coordinator of transactions did not answer"):
                deliver(producer, numbered(3, 6))
        monkeypatch.undo()
        with target.producer(**{"transactional.id": "stuck"}) as producer:
            deliver(producer, numbered(0, 6))
    finally:
        ended.set()
    assert target.values() == [b"%d" % number for number in range(6)]
