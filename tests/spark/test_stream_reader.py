"""The stream reader without Spark: what it answers to the calls that Spark makes, in Spark's order."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, LongType, StructType

from magnetar.pipelines.connector.read.datasource import stream_reader
from magnetar.pipelines.connector.read.errors import DataLost, TopicError
from magnetar.pipelines.connector.read.reader import SliceTask
from magnetar.pipelines.connector.read.stream import StreamReader
from magnetar.testing.server import MagnetarProcess
from tests.spark.writers import Writers

Make = Callable[..., StreamReader]
ALL = ReadAllAvailable()


@pytest.fixture
def writers(own_writers: Writers) -> Writers:
    return own_writers


@pytest.fixture
def reader(own_server: MagnetarProcess, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr("magnetar.pipelines.connector.read.stream.TOPICS_EVERY_S", 0.0)

    def _reader(topic: str, **options: object) -> StreamReader:
        settings: dict[str, object] = {
            "subscribe": topic,
            "admin__url": own_server.http_url,
            "startingOffsets": "earliest",
            **options,
        }
        given = {name.replace("__", "."): str(value) for name, value in settings.items() if value is not None}
        return stream_reader(given, StructType().add("offset", LongType()).add("value", BinaryType()))

    return _reader


def _rows(number: int, begin: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"k", b"%d" % value) for value in range(begin, begin + number)]


def _read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """The values between two offsets, as numbers."""
    found: list[int] = []
    for task in reader.partitions(start, end):
        assert isinstance(task, SliceTask)
        for batch in reader.read(task):
            found += [int(value) for value in batch.column("value").to_pylist()]
    return found


def test_offsets_go_on_and_stay_when_nothing_comes(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic(), 2)
    writers.kafka(name, _rows(10))
    stream = reader(name)
    start = stream.initialOffset()
    assert start == {name: {"0": 0, "1": 0}}
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == {name: {"0": 10, "1": 0}}
    assert stream.reportLatestOffset() == end
    assert _read(stream, start, end) == list(range(10))
    assert json.dumps(stream.latestOffset(end, ALL)) == json.dumps(end)
    writers.kafka(name, _rows(5, 10), partition=1)
    later = stream.latestOffset(end, ALL)
    assert _read(stream, end, later) == list(range(10, 15))
    assert not stream.partitions(later, later)


def test_a_stream_begins_with_what_comes_unless_told_otherwise(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _rows(10))
    assert reader(name, startingOffsets=None).initialOffset() == {name: {"0": 10}}
    assert reader(name, startingOffsets=f'{{"{name}":{{"0":7}}}}').initialOffset() == {name: {"0": 7}}


def test_limits_of_a_trigger(reader: Make, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic(), 2)
    writers.kafka(name, _rows(90))
    writers.kafka(name, _rows(10), partition=1)
    stream = reader(name, maxOffsetsPerTrigger=20)
    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(20)) == {name: {"0": 18, "1": 2}}
    assert stream.latestOffset(start, ALL) == {name: {"0": 90, "1": 10}}  # Trigger.Once
    assert stream.reportLatestOffset() == {name: {"0": 90, "1": 10}}
    patient = reader(name, minOffsetsPerTrigger=1_000)
    assert patient.getDefaultReadLimit() == ReadMinRows(1_000)
    assert patient.latestOffset(start, ReadMinRows(1_000)) == start
    hurried = reader(name, minOffsetsPerTrigger=1_000, maxTriggerDelay="0ms")
    assert hurried.latestOffset(start, ReadMinRows(1_000)) == {name: {"0": 90, "1": 10}}


def test_a_run_that_ends_reads_what_there_was_when_it_began(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _rows(10))
    stream = reader(name, maxOffsetsPerTrigger=6, minOffsetsPerTrigger=6)
    stream.prepareForTriggerAvailableNow()
    writers.kafka(name, _rows(10, 10))
    writers.grow(name, 2)
    start = stream.initialOffset()
    first = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert first == {name: {"0": 6}}
    last = stream.latestOffset(first, stream.getDefaultReadLimit())
    assert last == {name: {"0": 10}}
    assert stream.latestOffset(last, stream.getDefaultReadLimit()) == last


def test_partitions_and_topics_that_appear_are_read_from_their_beginning(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    prefix = topic()
    writers.create(f"{prefix}a")
    stream = reader(prefix, subscribe=None, subscribePattern=f"{prefix}.*")
    start = stream.initialOffset()
    writers.grow(f"{prefix}a", 2)
    writers.kafka(f"{prefix}a", _rows(3), partition=1)
    writers.create(f"{prefix}b")
    writers.kafka(f"{prefix}b", _rows(3, 3))
    end = stream.latestOffset(start, ALL)
    assert end == {f"{prefix}a": {"0": 0, "1": 3}, f"{prefix}b": {"0": 3}}
    assert sorted(_read(stream, start, end)) == list(range(6))


def test_only_what_is_decided_is_read(reader: Make, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    writers.transaction(name, _rows(3), name=f"{name}-1", commit=False)
    writers.transaction(name, _rows(3, 3), name=f"{name}-2", commit=True)
    stream = reader(name)
    start = stream.initialOffset()
    assert _read(stream, start, stream.latestOffset(start, ALL)) == [3, 4, 5]


def test_a_long_backlog_is_read_from_files(reader: Make, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    for turn in range(3):
        writers.kafka(name, [(b"k" * 100, value) for _, value in _rows(30_000, 30_000 * turn)])
    stream = reader(name)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    deadline = time.monotonic() + 60  # files are written behind the writer's back
    while True:
        (task,) = stream.partitions(start, end)
        assert isinstance(task, SliceTask)
        if any(piece.path is not None for piece in task.pieces):
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert task.scan.lease is not None
    assert _read(stream, start, end) == list(range(90_000))
    (task,) = stream.partitions(start, {name: {"0": 50}})
    assert isinstance(task, SliceTask)
    assert task.scan.lease is None
    assert [piece.path for piece in task.pieces] == [None]


def test_a_subscription_follows_and_holds(reader: Make, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    writers.kafka(name, _rows(10))
    subscription = f"{name}-spark"

    stream = reader(name, predefinedSubscription=subscription)
    start = stream.initialOffset()
    assert writers.position(subscription) == 0
    end = stream.latestOffset(start, ALL)
    _read(stream, start, end)
    assert writers.position(subscription) == 0
    stream.commit(end)
    assert writers.position(subscription) == 10
    writers.kafka(name, _rows(10, 10))
    # Without a checkpoint the subscription is where a query goes on; with one, it is where the checkpoint stands.
    again = reader(name, predefinedSubscription=subscription)
    assert again.initialOffset() == {name: {"0": 10}}
    assert again.latestOffset({name: {"0": 15}}, ALL) == {name: {"0": 20}}
    assert writers.position(subscription) == 15


def test_lost_records_are_an_error_unless_told_otherwise(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _rows(10))
    start, end = {name: {"0": 2}}, {name: {"0": 10}}
    writers.delete_before(name, 0, 6)
    with pytest.raises(DataLost, match=f"topic {name} partition 0: offsets 2 to 5 have been deleted"):
        reader(name).partitions(start, end)
    assert _read(reader(name, failOnDataLoss="false"), start, end) == [6, 7, 8, 9]


def test_a_topic_that_was_made_anew_is_noticed(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    other = writers.create(topic())
    writers.kafka(name, _rows(10))
    strict = reader(f"{name},{other}")
    patient = reader(f"{name},{other}", failOnDataLoss="false", predefinedSubscription=f"{name}-spark")
    start = strict.initialOffset()
    end = strict.latestOffset(start, ALL)
    writers.delete(name)
    with pytest.raises(TopicError, match=f"there is no topic {name}"):
        strict.latestOffset(end, ALL)
    assert patient.latestOffset(end, ALL) == {other: {"0": 0}}
    with pytest.raises(TopicError, match=f"topic {name} partition 0 cannot be read: .*failOnDataLoss"):
        strict.partitions(start, end)
    assert _read(patient, start, end) == []
    writers.create(name)
    writers.kafka(name, _rows(4))
    with pytest.raises(DataLost, match=f"{name}-0 ends before offsets that were read already"):
        strict.latestOffset(end, ALL)
    with pytest.raises(DataLost, match=f"topic {name} partition 0 ends at 4, before offset 10"):
        strict.partitions(start, end)
    assert patient.latestOffset(end, ALL) == {name: {"0": 4}, other: {"0": 0}}
    assert _read(patient, start, end) == [0, 1, 2, 3]


def test_a_task_can_be_sent_and_a_reader_with_it(
    reader: Make, writers: Writers, topic: Callable[[], str]
) -> None:
    from pyspark.serializers import CPickleSerializer

    name = writers.create(topic())
    writers.kafka(name, _rows(10))
    stream = reader(name)
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, ALL))
    serializer: Any = CPickleSerializer()
    sent_reader, (sent,) = serializer.loads(serializer.dumps((stream, tasks)))
    assert sum(batch.num_rows for batch in sent_reader.read(sent)) == 10
