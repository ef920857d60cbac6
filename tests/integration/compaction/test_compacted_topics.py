"""Compacted topics as their clients see them, on a real server that compacts every tenth of a second."""

import itertools
import json
import random
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pulsar
import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.partition_reader import read_partition

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

TIMEOUT_S = 60
_names = itertools.count()
EAGER = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    settings = {"log.cleaner.backoff.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with MagnetarProcess(settings=settings) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


def make_topic(server: MagnetarProcess, **config: str) -> str:
    name = f"compacted-{next(_names)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 1, config={**EAGER, **config})])
    made[name].result(TIMEOUT_S)
    return name


def producer(server: MagnetarProcess, **config: object) -> Producer:
    return Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5, **config})


def metric(server: MagnetarProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(name)


def backlog(server: MagnetarProcess, topic: str, subscription: str) -> int:
    path = f"admin/v2/persistent/public/default/{topic}-partition-0/stats"
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/{path}") as page:
        return int(json.load(page)["subscriptions"][subscription]["msgBacklog"])


def compacted(server: MagnetarProcess, topic: str, expected: dict[bytes, bytes]) -> list[Message]:
    """What is there once exactly these keys and values are left, which takes a roll by time and a run."""
    writer = producer(server)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = read_partition(server, topic)
        values = {one.key(): one.value() for one in found if one.key() != b"tick"}
        assert {key: value for key, value in values.items() if value is not None} == expected
        others = [one for one in found if one.key() != b"tick"]
        if len(others) == len(expected):
            return found
        assert time.monotonic() < deadline, f"{len(others)} records are left of {len(expected)} keys"
        # What is open is not compacted; a record more closes it, when it is old enough.
        writer.produce(topic, b"", b"tick")
        writer.flush()
        time.sleep(0.2)


@pytest.mark.parametrize(
    "codec",
    ["none", "zstd", *(pytest.param(codec, marks=pytest.mark.soak) for codec in ("gzip", "snappy", "lz4"))],
)
def test_what_is_left_is_the_last_value_of_each_key_at_its_offset(
    server: MagnetarProcess, codec: str
) -> None:
    topic = make_topic(server)
    writer = producer(server, **{"compression.type": codec})
    chance = random.Random(codec)
    last: dict[bytes, bytes] = {}
    offsets: dict[bytes, int] = {}
    count = 5000
    for offset in range(count):
        key = b"key-%d" % chance.randrange(300)
        value = None if chance.random() < 0.05 else b"%d " % offset * 20
        writer.produce(topic, value, key)
        offsets[key] = offset
        last.pop(key, None)
        if value is not None:
            last[key] = value
    writer.flush()
    won = metric(server, "magnetar_compaction_won_bytes_total")
    found = compacted(server, topic, last)
    assert {one.key(): one.offset() for one in found if one.key() in last} == {
        key: offsets[key] for key in last
    }
    assert metric(server, "magnetar_compaction_won_bytes_total") > won
    assert metric(server, "magnetar_compaction_runs_total") > 0
    middle = sorted(offsets[key] for key in last)[len(last) // 2]
    later = read_partition(server, topic, offset=middle - 1)
    assert {one.key() for one in later if one.key() != b"tick"} == {
        key for key in last if offsets[key] >= middle - 1
    }
    server.kill()
    server.restart()
    assert {one.key(): one.value() for one in read_partition(server, topic) if one.key() in last} == last


def test_aborted_transactions_go_and_committed_ones_stay(server: MagnetarProcess) -> None:
    topic = make_topic(server)
    expected: dict[bytes, bytes] = {}
    for number in range(12):
        writer = producer(server, **{"transactional.id": f"txn-{number % 2}"})
        writer.init_transactions(TIMEOUT_S)
        writer.begin_transaction()
        rows = {b"key-%d" % (number % 4): b"value-%d" % number, b"own-%d" % number: b"1"}
        for key, value in rows.items():
            writer.produce(topic, value, key)
        if number % 3 == 0:
            writer.flush()
            writer.abort_transaction(TIMEOUT_S)
        else:
            writer.commit_transaction(TIMEOUT_S)
            expected |= rows
    compacted(server, topic, expected)
    uncommitted = read_partition(server, topic, isolation="read_uncommitted")
    assert {one.key() for one in uncommitted} - {b"tick"} == set(expected), (
        "what was aborted is not there at all"
    )


def test_records_without_a_key_are_refused_one_by_one_and_the_others_are_stored(
    server: MagnetarProcess,
) -> None:
    topic = make_topic(server)
    outcomes: dict[str, object] = {}
    writer = producer(server, **{"linger.ms": 0, "batch.num.messages": 1})
    for name, key in (("a", b"a"), ("none", None), ("b", b"b")):

        def told(error: KafkaError | None, message: Message, name: str = name) -> None:
            outcomes[name] = error and error.name()

        writer.produce(topic, b"1", key, on_delivery=told)
    writer.flush()
    assert outcomes == {"a": None, "none": "INVALID_RECORD", "b": None}
    assert [one.key() for one in read_partition(server, topic)] == [b"a", b"b"]


def test_pulsars_clients_read_what_is_left_and_their_backlog_comes_down(server: MagnetarProcess) -> None:
    topic = make_topic(server)
    writer = producer(server)
    for number in range(600):
        writer.produce(topic, b"%d" % number, b"key-%d" % (number % 7))
    writer.flush()
    client = pulsar.Client(server.pulsar_url)
    try:
        early = client.subscribe(topic, "early", initial_position=pulsar.InitialPosition.Earliest)
        first = early.receive(TIMEOUT_S * 1000)
        expected = {b"key-%d" % (number % 7): b"%d" % number for number in range(593, 600)}
        compacted(server, topic, expected)
        early.acknowledge(first)
        early.close()
        late = client.subscribe(topic, "late", initial_position=pulsar.InitialPosition.Earliest)
        early = client.subscribe(topic, "early", initial_position=pulsar.InitialPosition.Earliest)
        for consumer in (late, early):
            found: dict[str, bytes] = {}
            while not {key.decode() for key in expected} <= set(found):
                message = consumer.receive(TIMEOUT_S * 1000)
                found[message.partition_key()] = message.data()
                consumer.acknowledge_cumulative(message)
            assert {key: found[key.decode()] for key in expected} == expected
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        shown = []
        while reader.has_message_available():
            shown.append(reader.read_next(TIMEOUT_S * 1000))
        deadline = time.monotonic() + TIMEOUT_S
        while backlog(server, topic, "late"):
            assert time.monotonic() < deadline, "gaps count as messages that wait"
            with suppress(pulsar.Timeout):
                late.acknowledge_cumulative(late.receive(1000))
        ids = [
            (one.message_id().ledger_id(), one.message_id().entry_id(), one.message_id().batch_index())
            for one in shown
        ]
        assert ids == sorted(ids)
        again = client.create_reader(topic, shown[2].message_id(), start_message_id_inclusive=True)
        assert again.read_next(TIMEOUT_S * 1000).data() == shown[2].data()
    finally:
        client.close()


def test_what_is_left_of_batches_comes_to_pulsars_consumers_once_and_is_acknowledged_one_by_one(
    server: MagnetarProcess,
) -> None:
    """C++ clients, Python's among them, show each `compacted_out` message that they are sent."""
    topic = make_topic(server)
    writer = producer(server, **{"linger.ms": 200})
    client = pulsar.Client(server.pulsar_url)
    try:
        own = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=200)
        expected: dict[bytes, bytes] = {}
        for number in range(40):
            for name, key in ((b"kafka", b"k-rest-%d" % number), (b"kafka", b"k-again-%d" % (number % 3))):
                expected[key] = b"%s %d" % (name, number)
                writer.produce(topic, expected[key], key)
            for key in (b"p-rest-%d" % number, b"p-again-%d" % (number % 3)):
                expected[key] = b"pulsar %d" % number
                own.send_async(expected[key], lambda *done: None, partition_key=key.decode())
        writer.flush()
        own.flush()
        own.close()
        compacted(server, topic, expected)
        for kind in (
            pulsar.ConsumerType.Shared,
            pulsar.ConsumerType.KeyShared,
            pulsar.ConsumerType.Exclusive,
        ):
            consumer = client.subscribe(
                topic, f"each-{kind.name}", kind, initial_position=pulsar.InitialPosition.Earliest
            )
            found: list[tuple[bytes, bytes]] = []
            deadline = time.monotonic() + TIMEOUT_S
            while backlog(server, topic, f"each-{kind.name}"):
                assert time.monotonic() < deadline
                with suppress(pulsar.Timeout):
                    message = consumer.receive(500)
                    found.append((message.partition_key().encode(), message.data()))
                    consumer.acknowledge(message)
            assert sorted(one for one in found if one[0] != b"tick") == sorted(expected.items())
            consumer.close()
    finally:
        client.close()


def test_a_topic_that_is_deleted_while_it_is_compacted_leaves_nothing(server: MagnetarProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for _ in range(5):
        topic = make_topic(server)
        writer = producer(server)
        for number in range(20_000):
            writer.produce(topic, b"x" * 200, b"key-%d" % (number % 5000))
        writer.flush()
        time.sleep(random.random() / 2)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    server.restart()
    assert "belong to no topic" not in server.log


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_that_is_killed_again_and_again_while_it_compacts_loses_nothing() -> None:
    settings = {"log.cleaner.backoff.ms": "20", "log.cleaner.io.max.bytes.per.second": "20000000"}
    chance = random.Random(11)
    with MagnetarProcess(settings=settings) as server:
        topic = make_topic(server, **{"segment.bytes": "1048576", "delete.retention.ms": "86400000"})
        last: dict[bytes, bytes] = {}
        for life in range(6):  # `make soak` has hundreds: its lives are compacted, too
            writer = producer(server, **{"compression.type": chance.choice(["none", "lz4"])})
            for number in range(4000):
                key = b"key-%d" % chance.randrange(2000)
                last[key] = b"%d-%d " % (life, number) * 60
                writer.produce(topic, last[key], key)
            writer.flush()
            time.sleep(chance.random() * 0.7)
            server.kill()
            server.restart()
            found = read_partition(server, topic)
            offsets = [one.offset() or 0 for one in found]
            assert offsets == sorted(set(offsets))
            assert {one.key(): one.value() for one in found} == last
        assert "belong to no topic" not in server.log
        assert "given up" not in server.log
        compacted(server, topic, last)
        size = sum(path.stat().st_size for path in server.data_dir.glob("segments/*.segment"))
        assert size < 4 * sum(len(key) + len(value) for key, value in last.items()), "old ledgers are gone"
        assert "Traceback" not in server.log, server.log[-5000:]
