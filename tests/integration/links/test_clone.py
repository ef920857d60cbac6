"""Topics of a real Apache Kafka, copied by the command, as consumers of both sides see them."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType

from magnetar.client.links import LinksClient
from magnetar.links.kafka.record import Record, batches_of
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.kafka_peer import KafkaPeer
from tests.peers import is_here

from .cloning import (
    TIMEOUT_S,
    Cloning,
    check_same,
    clone,
    cut,
    eventually,
    is_linked,
    is_same,
    link_of,
    new_topic,
    produce,
    read_topic,
    transact,
)

pytestmark = [
    pytest.mark.clients,
    pytest.mark.peers,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not is_here("kafka"), reason="Apache Kafka is not here"),
]


# The server compacts nothing by itself, so that copies stay as they are.
SETTINGS = {"log.cleaner.backoff.ms": "86400000"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    settings = {"log_cleaner_backoff_ms": "100", "log_cleaner_min_cleanable_ratio": "0.01"}
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), **settings) as running:
        yield running


def values(first: int, count: int) -> list[bytes | None]:
    return [None if number % 17 == 0 else b"value-%d" % number for number in range(first, first + count)]


def test_every_offset_key_value_header_and_time_is_equal(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source, 3, {"retention.ms": "-1", "max.message.bytes": "2000000"})
    produce(source, topic, values(0, 3000), **{"compression.type": "zstd"})
    for number in range(6):
        transact(
            source, topic, f"{topic}-{number}", [b"t-%d" % one for one in range(20)], commits=number % 3 != 1
        )
        produce(source, topic, values(number, 5))
    transact(source, topic, f"{topic}-last", [b"never seen"] * 30, commits=False)
    clone(source, server, "--topics", topic)
    found = check_same(source, server, topic)
    assert sum(len(one.records) for one in found) == 3000 + 4 * 20 + 6 * 5
    assert all(one.end > one.records[-1][0] + 1 for one in found), "each ends with what is no record"
    server.kill()
    server.restart()
    check_same(source, server, topic)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    (entries,) = (future.result(TIMEOUT_S) for future in configs.values())
    assert (entries["retention.ms"].value, entries["max.message.bytes"].value) == ("-1", "2000000")


def test_gaps_of_compaction_stay_where_they_are(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "100000",
    }
    topic = new_topic(source, 1, config)
    produced = 0

    def is_compacted() -> bool:
        nonlocal produced
        produce(source, topic, values(produced, 500))
        produced += 500
        (partition,) = read_topic(source, topic)
        return len(partition.records) < produced - 400

    eventually(is_compacted, "Kafka has not compacted its topic")
    # What is open is not compacted, and no more comes: both sides stay as they are.
    said = clone(source, server, "--topics", topic)
    (theirs,), (ours,) = read_topic(source, topic), read_topic(server.bootstrap, topic)
    assert (ours.first, ours.end) == (theirs.first, theirs.end)
    kept = {one[0]: one for one in theirs.records}
    assert [one for one in ours.records if one[0] in kept] == theirs.records, said
    assert len(ours.records) < produced


def test_stamped_times_and_a_moved_beginning_are_equal(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source, 2, {"message.timestamp.type": "LogAppendTime"})
    for number in range(5):
        produce(source, topic, values(number, 100))
    admin = AdminClient({"bootstrap.servers": source})
    for future in admin.delete_records([ck.TopicPartition(topic, 0, 30)]).values():
        future.result(TIMEOUT_S)
    clone(source, server, "--topics", topic)
    found = check_same(source, server, topic)
    assert found[0].first == 30
    assert {one[4][0] for partition in found for one in partition.records} == {ck.TIMESTAMP_LOG_APPEND_TIME}


def refusal(server: MagnetarProcess, topic: str) -> int | None:
    """The code with which a producer is refused; None if it is not."""
    errors: list[ck.KafkaError | None] = []
    producer = ck.Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, b"no", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = errors
    return None if error is None else error.code()


def test_only_the_link_writes_until_the_topic_is_cut_loose(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, values(0, 10))
    clone(source, server, "--topics", topic)
    for _ in range(2):
        assert refusal(server, topic) == ck.KafkaError.POLICY_VIOLATION
        server.restart()
    cut(server, topic)
    produce(server.bootstrap, topic, values(0, 3))
    (ours,) = read_topic(server.bootstrap, topic)
    assert [one[0] for one in ours.records] == list(range(13))
    code, said = Cloning(source, server, "--topics", topic).run()
    assert code == 1
    assert "exists and is not linked" in said
    assert "Traceback" not in said


def consumed(bootstrap: str, topic: str, group: str, count: int) -> list[int]:
    """The next `count` records of a group, which commits them: the numbers in their values."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < deadline, (len(found), count)
        for message in consumer.consume(min(100, count - len(found)), 0.2):
            assert message.error() is None, message.error()
            found.append(int((message.value() or b"-1").decode()))
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_groups_resume_without_a_repeated_or_a_missing_record(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source, 3)
    numbers = [b"%d" % number for number in range(1000)]
    produce(source, topic, numbers)
    transact(source, topic, f"{topic}-aborted", [b"-5"] * 10, commits=False)
    first = consumed(source, topic, f"{topic}-half", 400)
    everything = consumed(source, topic, f"{topic}-all", 1000)
    assert sorted(everything) == list(range(1000))
    clone(source, server, "--topics", topic)
    rest = consumed(server.bootstrap, topic, f"{topic}-half", 600)
    assert sorted(first + rest) == list(range(1000))
    cut(server, topic)
    produce(server.bootstrap, topic, [b"%d" % number for number in range(1000, 1050)])
    assert sorted(consumed(server.bootstrap, topic, f"{topic}-all", 50)) == list(range(1000, 1050))
    assert sorted(consumed(server.bootstrap, topic, f"{topic}-half", 50)) == list(range(1000, 1050))


def test_consumers_of_pulsar_read_and_acknowledge_over_gaps(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    for number in range(4):
        transact(source, topic, f"{topic}-{number}", [b"%d" % number] * 25, commits=number % 2 == 0)
    clone(source, server, "--topics", topic)
    client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(
            topic,
            "all",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        found = []
        for _ in range(50):
            message = consumer.receive(int(TIMEOUT_S * 1000))
            found.append(message.data())
            consumer.acknowledge(message)
        assert sorted(found) == [b"0"] * 25 + [b"2"] * 25
        eventually(lambda: backlog(server, topic, "all") == 0, "there is a backlog of what is no message")
    finally:
        client.close()


def backlog(server: MagnetarProcess, topic: str, subscription: str) -> int:
    path = f"admin/v2/persistent/public/default/{topic}-partition-0/stats"
    with urllib.request.urlopen(f"{server.http_url}/{path}") as page:
        return int(json.load(page)["subscriptions"][subscription]["msgBacklog"])


def test_what_follows_comes_too_over_kills_of_the_link_and_the_server(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source, 2)
    arguments = ("--topics", f"{topic}.*", "--follow")
    produce(source, topic, values(0, 20_000))
    for number in range(3):
        with Cloning(source, server, *arguments) as link:
            eventually(lambda: is_linked(server, topic), "the topic is not linked")
            produce(source, topic, values(number, 20_000))
            link.kill()
    with Cloning(source, server, *arguments):
        produce(source, topic, values(0, 20_000))
        server.kill()
        produce(source, topic, values(0, 5000))
        server.restart()
        transact(source, topic, f"{topic}-one", [b"x"] * 50, commits=True)
        admin = AdminClient({"bootstrap.servers": source})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
        produce(source, topic, values(0, 1000))
        eventually(lambda: is_same(source, server, topic), "the copy is not the same")
        assert len(check_same(source, server, topic)) == 4
        eventually(lambda: link_of(server, topic).lag == 0, "the lag is not reported")


def test_two_links_of_one_topic_copy_each_record_once(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source, 2)
    produce(source, topic, values(0, 20_000))
    arguments = ("--topics", topic, "--follow")
    with Cloning(source, server, *arguments), Cloning(source, server, *arguments):
        for number in range(5):
            produce(source, topic, values(number, 10_000))
        eventually(lambda: is_same(source, server, topic), "the copy is not the same")
        produce(source, topic, values(0, 100))
        eventually(lambda: is_same(source, server, topic), "the links have stopped")


def test_a_link_goes_on_where_another_one_has_ended_in_the_middle_of_its_batch(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, values(0, 10))
    with Cloning(source, server, "--topics", topic, "--follow") as link:
        eventually(lambda: is_same(source, server, topic), "the copy is not the same")
        others = [Record(topic, 0, offset, 5, b"k", b"of the other link") for offset in (10, 11)]
        client = LinksClient(server.http_url)
        end = client.append(topic, 0, b"".join(batches_of(others)), after=10, begin=0, end=0)
        client.close()
        assert end == 12
        produce(source, topic, values(10, 3), **{"linger.ms": 500})
        eventually(lambda: read_topic(server.bootstrap, topic)[0].end == 13, "the link has stopped")
        assert link.process is not None
        assert link.process.poll() is None
    (theirs,), (ours,) = read_topic(source, topic), read_topic(server.bootstrap, topic)
    assert [one[2] for one in ours.records[10:12]] == [b"of the other link"] * 2
    assert ours.records[:10] + ours.records[12:] == theirs.records[:10] + theirs.records[12:]


def test_a_topic_that_is_cut_loose_while_it_is_followed_is_left_alone(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic, other = new_topic(source), new_topic(source)
    produce(source, topic, values(0, 10))
    with Cloning(source, server, "--topics", f"{topic}|{other}", "--follow") as link:
        eventually(lambda: is_same(source, server, topic), "the copy is not the same")
        cut(server, topic)
        produce(server.bootstrap, topic, [b"mine"])
        produce(source, topic, values(0, 10))
        produce(source, other, values(0, 10))
        eventually(lambda: is_same(source, server, other), "the other topic is not copied any more")
        (ours,) = read_topic(server.bootstrap, topic)
        assert [one[0] for one in ours.records] == list(range(11))
        assert ours.records[-1][2] == b"mine"
        assert link.process is not None
        assert link.process.poll() is None


def test_what_the_source_has_deleted_before_it_was_copied_is_a_gap(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, values(0, 50))
    clone(source, server, "--topics", topic)
    produce(source, topic, values(50, 50))
    admin = AdminClient({"bootstrap.servers": source})
    for future in admin.delete_records([ck.TopicPartition(topic, 0, 80)]).values():
        future.result(TIMEOUT_S)
    clone(source, server, "--topics", topic)
    (theirs,), (ours,) = read_topic(source, topic), read_topic(server.bootstrap, topic)
    assert (theirs.first, theirs.end, ours.first, ours.end) == (80, 100, 0, 100)
    assert [one[0] for one in ours.records] == [*range(50), *range(80, 100)]
    assert ours.records[50:] == theirs.records


def test_a_topic_that_was_created_again_in_the_source_is_not_mixed_with_the_old_one(
    kafka: KafkaPeer, server: MagnetarProcess
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, values(0, 10))
    clone(source, server, "--topics", topic)
    admin = AdminClient({"bootstrap.servers": source})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)

    def is_created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
        except ck.KafkaException:
            return False
        return True

    eventually(is_created, "the topic cannot be created again")
    produce(source, topic, values(0, 20))
    code, said = Cloning(source, server, "--topics", topic).run()
    assert code == 1
    assert "is a copy of another topic" in said
    (ours,) = read_topic(server.bootstrap, topic)
    assert len(ours.records) == 10


def test_a_source_that_dies_and_comes_back_is_followed(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, values(0, 1000))
    with Cloning(source, server, "--topics", topic, "--follow"):
        eventually(lambda: is_same(source, server, topic), "the copy is not the same")
        kafka.kill()
        try:
            eventually(lambda: link_of(server, topic).error != "", "no trouble is reported")
        finally:
            kafka.start()  # other tests need it, too
        produce(source, topic, values(0, 1000))
        eventually(lambda: is_same(source, server, topic), "what came later is not copied")
        eventually(lambda: link_of(server, topic).error == "", "the trouble is still reported")


def test_only_records_since_a_time_come_at_their_offsets(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    producer = ck.Producer({"bootstrap.servers": source})
    now_ms = time.time_ns() // 1_000_000
    for number in range(100):
        producer.produce(topic, b"%d" % number, timestamp=now_ms - (100 - number) * 60_000)
    producer.flush(TIMEOUT_S)
    clone(source, server, "--topics", topic, "--since", "30m")
    (theirs,), (ours,) = read_topic(source, topic), read_topic(server.bootstrap, topic)
    assert 69 <= ours.first <= 71
    assert ours.end == theirs.end
    assert ours.records == [one for one in theirs.records if one[0] >= ours.first]


def test_a_mask_changes_records_and_not_their_offsets(
    kafka: KafkaPeer, server: MagnetarProcess, tmp_path: Path
) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, [b"%d" % number for number in range(100)])
    (tmp_path / "redact.py").write_text(
        "def mask(record):\n"
        "    if record.offset % 10 == 9:\n"
        "        return None\n"
        "    return record._replace(value=b'x' * len(record.value), headers=())\n"
    )
    clone(source, server, "--topics", topic, "--mask", "redact:mask", folder=tmp_path)
    (theirs,), (ours,) = read_topic(source, topic), read_topic(server.bootstrap, topic)
    assert ours.end == theirs.end
    assert ours.records == [
        (offset, key, b"x" * len(value or b""), [], stamp)
        for offset, key, value, _, stamp in theirs.records
        if offset % 10 != 9
    ]


def test_a_wrong_address_and_no_topic_are_one_sentence(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    (port,) = free_ports(1)
    for source, topics, sentence in (
        (f"127.0.0.1:{port}", ".*", "does not answer"),
        (kafka.bootstrap, "no-such-topic", "has no topic whose name fits"),
    ):
        code, said = Cloning(source, server, "--topics", topics).run()
        assert (code, said.count("\n")) == (1, 1), said
        assert sentence in said
    for arguments in (
        ("--topics", "("),
        ("--topics", "x", "--since", "soon"),
        ("--topics", "x", "--mask", "no:no"),
    ):
        code, said = Cloning(kafka.bootstrap, server, *arguments).run()
        assert (code, said.count("\n")) == (2, 1), said


def test_a_topic_that_has_data_of_its_own_is_left_alone(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source)
    produce(source, topic, values(0, 10))
    produce(server.bootstrap, topic, [b"mine"])
    code, said = Cloning(source, server, "--topics", topic).run()
    assert code == 1
    assert "exists and is not linked" in said
    (ours,) = read_topic(server.bootstrap, topic)
    assert [one[2] for one in ours.records] == [b"mine"]


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_million_records_are_equal(kafka: KafkaPeer, server: MagnetarProcess) -> None:
    source = kafka.bootstrap
    topic = new_topic(source, 4)
    for number in range(10):
        produce(source, topic, values(100_000 * number, 100_000), **{"compression.type": "lz4"})
        transact(source, topic, f"{topic}-{number}", [b"t"] * 1000, commits=number % 2 == 0)
    clone(source, server, "--topics", topic)
    found = check_same(source, server, topic)
    assert sum(len(one.records) for one in found) == 1_000_000 + 5 * 1000
