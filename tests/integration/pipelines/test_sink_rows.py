"""Arrow rows in a topic: every column of Spark's sink, as a Kafka client finds them."""

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import closing

import confluent_kafka
import pyarrow as pa
import pytest

from magnetar.client.kafka.cluster import Cluster
from magnetar.client.kafka.errors import Refused, UnknownTopic
from magnetar.client.kafka.transactions import idempotent_producer
from magnetar.pipelines.connector.write.errors import RowError
from magnetar.pipelines.connector.write.rows import RowWriter
from magnetar.testing.server import MagnetarProcess
from tests.integration.pipelines.sink_kit import options_for, read_committed, rows, values_of

PARTITIONS = 3
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"num.partitions": str(PARTITIONS)}) as running:
        yield running


def write(server: MagnetarProcess, *batches: pa.RecordBatch, idempotent: bool = True, **options: str) -> None:
    with closing(Cluster(server.bootstrap, patience_s=20)) as cluster:
        writer = RowWriter(
            cluster, options_for(server, **options), idempotent_producer(cluster) if idempotent else None
        )
        for batch in batches:
            writer.write(batch)
        writer.flush()
        assert sum(writer.written.values()) == sum(batch.num_rows for batch in batches)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_headers_and_nulls_arrive_whole(server: MagnetarProcess, compression: str) -> None:
    topic = f"whole-{compression}"
    write(
        server,
        pa.record_batch(
            {
                "key": pa.array(["a", None, ""]),
                "value": pa.array([b"\x00\xff", b"", None], pa.binary()),
                "headers": pa.array(
                    [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []], HEADERS
                ),
                "partition": pa.array([2, 2, 2], pa.int32()),
                "offset": pa.array([7, 8, 9], pa.int64()),  # is no column of the sink
            }
        ),
        topic=topic,
        kafka_compression_type=compression,
    )
    found = [
        (m.partition(), m.key(), m.value(), m.headers()) for m in read_committed(server, topic, PARTITIONS)
    ]
    assert found == [
        (2, b"a", b"\x00\xff", [("h", b"1"), ("h", None)]),
        (2, None, b"", None),
        (2, b"", None, None),
    ]


def test_keys_lie_where_librdkafka_puts_them_and_keep_their_order(server: MagnetarProcess) -> None:
    keys = [f"key {n % 50}" for n in range(5000)]
    write(server, rows([str(n) for n in range(5000)], key=pa.array(keys)), topic="keyed")
    places: dict[bytes, int] = {}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": server.bootstrap, "partitioner": "murmur2_random", "log_level": 2}
    )
    for key in set(keys):
        producer.produce(
            "keyed-by-librdkafka",
            key=key,
            on_delivery=lambda _, message: places.update(
                {bytes(message.key() or b""): message.partition() or 0}
            ),
        )
    producer.flush(30)
    last: dict[bytes, int] = {}
    for message in read_committed(server, "keyed", PARTITIONS):
        found, number = bytes(message.key() or b""), int(message.value() or b"")
        assert message.partition() == places[found]
        assert number > last.get(found, -1)
        last[found] = number


def test_a_topic_column_says_where_each_row_goes_unless_the_option_does(server: MagnetarProcess) -> None:
    batch = rows(["1", "2", "3"], topic=pa.array(["by-row-a", "by-row-b", "by-row-a"]))
    write(server, batch)
    assert values_of(read_committed(server, "by-row-a", PARTITIONS)) == ["1", "3"]
    assert values_of(read_committed(server, "by-row-b", PARTITIONS)) == ["2"]
    write(server, batch, topic="by-option")
    assert values_of(read_committed(server, "by-option", PARTITIONS)) == ["1", "2", "3"]


def test_timestamps_are_of_now_or_of_the_column(server: MagnetarProcess) -> None:
    then = dt.datetime(2020, 2, 2, tzinfo=dt.UTC)
    batch = rows(["1"], timestamp=pa.array([then], pa.timestamp("us", tz="UTC")))
    write(server, batch, topic="time-now")
    write(server, batch, topic="time-then", includeTimestamp="true")
    (now,) = read_committed(server, "time-now", PARTITIONS)
    (old,) = read_committed(server, "time-then", PARTITIONS)
    assert now.timestamp()[1] > then.timestamp() * 1000 + 1e9
    assert old.timestamp()[1] == then.timestamp() * 1000


def test_many_small_arrow_batches_and_small_record_batches(server: MagnetarProcess) -> None:
    batches = [rows([f"{at + n:05}" for n in range(10)]) for at in range(0, 20_000, 10)]
    write(server, *batches, topic="small", kafka_batch_size="2048")
    assert values_of(read_committed(server, "small", PARTITIONS)) == [f"{n:05}" for n in range(20_000)]


@pytest.mark.parametrize("acks", ["1", "0"])
def test_fewer_acks(server: MagnetarProcess, acks: str) -> None:
    topic = f"acks-{acks}"
    write(server, rows(["1", "2"]), topic=topic, kafka_acks=acks, idempotent=False)
    if acks == "1":
        assert values_of(read_committed(server, topic, PARTITIONS)) == ["1", "2"]


def test_what_cannot_be_written_is_said(server: MagnetarProcess) -> None:
    with pytest.raises(RowError, match="null in the column topic"):
        write(server, rows(["1"], topic=pa.array([None], pa.string())))
    with pytest.raises(RowError, match=r"partition 3 of topic 'refused', which has 3 partitions"):
        write(server, rows(["1", "2"], partition=pa.array([0, 3], pa.int32())), topic="refused")
    with pytest.raises(RowError, match="partition -1"):
        write(server, rows(["1"], partition=pa.array([-1], pa.int32())), topic="refused")
    with pytest.raises(Refused, match="INVALID_TOPIC_EXCEPTION"):
        write(server, rows(["1"]), topic="not a name")
    with pytest.raises(Refused, match=r"kafka\.batch\.size"):
        write(server, rows(["x" * 2_000_000]), topic="refused")


def test_a_topic_that_is_not_made_is_unknown() -> None:
    with (
        MagnetarProcess(settings={"auto.create.topics.enable": "false"}) as server,
        pytest.raises(UnknownTopic, match="topic 'missing' does not exist"),
    ):
        write(server, rows(["1"]), topic="missing")


class StaleCluster(Cluster):
    """Takes the leader of the next partition for each one's while `is_stale`, which lasts until it asks again."""

    is_stale = False

    def leader(self, topic: str, partition: int) -> int:
        count = self.partition_count(topic)
        return super().leader(topic, (partition + 1) % count if self.is_stale else partition)

    def refresh(self, topics: Iterable[str]) -> None:
        self.is_stale = False
        super().refresh(topics)


def test_leaders_are_followed_and_order_is_kept_when_all_of_them_move() -> None:
    with (
        MagnetarProcess(settings={"num.partitions": "6"}, nodes=3) as server,
        closing(StaleCluster(server.bootstrap, patience_s=20)) as cluster,
    ):
        writer = RowWriter(cluster, options_for(server, topic="led"), idempotent_producer(cluster))
        assert len({cluster.leader("led", n) for n in range(6)}) == 3
        for begin in range(0, 60_000, 10_000):
            numbers = range(begin, begin + 10_000)
            partitions = pa.array([n % 6 for n in numbers], pa.int32())
            writer.write(rows([f"{n:0100}" for n in numbers], partition=partitions))
            cluster.is_stale = True
        writer.flush()
        found: dict[int, list[int]] = {n: [] for n in range(6)}
        for message in read_committed(server, "led", 6):
            found[message.partition() or 0].append(int(message.value() or b""))
        assert found == {n: list(range(n, 60_000, 6)) for n in range(6)}


def test_a_server_that_is_killed_under_a_task_has_each_row_once() -> None:
    with (
        MagnetarProcess(settings={"num.partitions": "2"}) as server,
        closing(Cluster(server.bootstrap)) as cluster,
    ):
        writer = RowWriter(cluster, options_for(server, topic="killed"), idempotent_producer(cluster))
        for begin in range(0, 100_000, 10_000):
            writer.write(rows([f"{n:0100}" for n in range(begin, begin + 10_000)]))
            if begin in (20_000, 60_000):
                server.kill()  # requests are in flight, and the next ones fail
                server.spawn()
        server.wait_ready()
        writer.flush()
        found = sorted(int(message.value() or b"") for message in read_committed(server, "killed", 2))
        assert found == list(range(100_000))
