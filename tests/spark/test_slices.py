"""The source without Spark: what a plan names is read, exactly, from files and from the broker."""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.pipelines.connector.options import OptionError, SchemaError
from magnetar.pipelines.connector.read.errors import DataLost, SourceError, TopicError
from magnetar.pipelines.connector.read.filters import Restriction
from magnetar.pipelines.connector.read.options import ReadMode, parse
from magnetar.pipelines.connector.read.plan import Piece
from magnetar.pipelines.connector.read.reader import SliceTask, plan_batch
from magnetar.pipelines.connector.read.slices import Slice
from magnetar.testing.server import MagnetarProcess, free_ports
from tests.spark.writers import Writers

Plan = Callable[..., list[SliceTask]]
Row = tuple[int, int, bytes | None, bytes | None]  # partition, offset, key, value


@pytest.fixture
def writers(own_writers: Writers) -> Writers:
    return own_writers


@pytest.fixture
def plan(own_server: MagnetarProcess) -> Plan:
    def _plan(topic: str, restriction: Restriction | None = None, **options: object) -> list[SliceTask]:
        settings: dict[str, object] = {"subscribe": topic, "admin__url": own_server.http_url, **options}
        given = {name.replace("__", "."): str(value) for name, value in settings.items() if value is not None}
        return plan_batch(parse(given, streaming=False), restriction or Restriction())

    return _plan


def _rows(tasks: list[SliceTask]) -> list[Row]:
    return [
        (part.partition, *row)
        for task in tasks
        for part in task.slices()
        for batch in part.record_batches(["offset", "key", "value"])
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def _values(count: int, size: int = 100) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % number, (b"%d|" % number).ljust(size, b".")) for number in range(count)]


def _filed(plan: Plan, name: str) -> list[SliceTask]:
    """A plan of the topic when some of it has been written to its file, which happens behind the writer's back."""
    deadline = time.monotonic() + 60
    while True:
        tasks = plan(name)
        if any(piece.path is not None for task in tasks for piece in task.pieces):
            return tasks
        assert time.monotonic() < deadline, "nothing was written to a file"
        time.sleep(0.05)


def _copied(
    tasks: list[SliceTask], folder: Path, content: Callable[[Piece, bytes], bytes]
) -> list[SliceTask]:
    """The tasks with files in `folder` instead, of which each holds what `content` makes of a piece and its file."""
    (folder / "segments").mkdir()

    def copied(piece: Piece) -> Piece:
        if piece.path is None:
            return piece
        copy = folder / "segments" / os.path.basename(piece.path)
        copy.write_bytes(content(piece, Path(piece.path).read_bytes()))
        return replace(piece, path=str(copy))

    return [replace(task, pieces=tuple(map(copied, task.pieces))) for task in tasks]


@pytest.mark.parametrize("mode", ["auto", "broker", "direct"])
def test_both_protocols_compressed_and_not(
    mode: str, plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic(), 2)
    expected: list[tuple[int, bytes, bytes]] = []
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        writers.kafka(name, _values(3_000), compression=compression)
        expected += [(0, *row) for row in _values(3_000)]
    writers.pulsar_rows(name, [(key.decode(), value) for key, value in _values(3_000)], partition=1)
    expected += [(1, *row) for row in _values(3_000)]
    rows = _rows(plan(name, read__mode=mode))
    assert [(partition, key, value) for partition, _, key, value in rows] == expected
    assert [offset for partition, offset, *_ in rows if partition == 0] == list(range(15_000))


def test_history_comes_from_files_and_only_the_tail_from_the_broker(
    plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    for _ in range(6):
        writers.kafka(name, _values(12_000))
        _filed(plan, name)
    tasks = plan(name)
    asked = [piece for task in tasks for piece in task.pieces if piece.path is None]
    filed = [piece for task in tasks for piece in task.pieces if piece.path is not None]
    assert len({piece.ledger for piece in filed}) > 1
    assert all(piece.from_offset >= filed[-1].to_offset for piece in asked)
    assert [row[3] for row in _rows(tasks)] == [value for _, value in _values(12_000)] * 6


def test_what_was_aborted_is_not_read_and_what_is_open_neither(
    plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.transaction(name, [(b"a", b"1"), (b"a", b"2")], name=f"{name}-1", commit=True)
    writers.transaction(name, [(b"b", b"3")], name=f"{name}-2", commit=False)
    writers.kafka(name, [(b"c", b"4")])
    assert [row[3] for row in _rows(plan(name))] == [b"1", b"2", b"4"]
    assert [row[1] for row in _rows(plan(name))] == [0, 1, 5]
    uncommitted = plan(name, **{"kafka__isolation__level": "read_uncommitted"})
    assert [row[3] for row in _rows(uncommitted)] == [b"1", b"2", b"3", b"4"]


def test_a_file_of_another_machine_is_not_missed(
    plan: Plan, writers: Writers, topic: Callable[[], str], tmp_path: Path
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(20_000))
    tasks = _filed(plan, name)
    elsewhere = [
        replace(
            task,
            pieces=tuple(replace(piece, path=piece.path and str(tmp_path / "none")) for piece in task.pieces),
        )
        for task in tasks
    ]
    assert len(_rows(elsewhere)) == 20_000
    direct = [replace(task, scan=replace(task.scan, mode=ReadMode.DIRECT)) for task in elsewhere]
    with pytest.raises(SourceError, match=r"read\.mode direct needs the broker's files on every machine"):
        _rows(direct)


def test_a_file_of_another_store_is_not_taken(
    plan: Plan, writers: Writers, topic: Callable[[], str], tmp_path: Path
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(20_000))
    tasks = _filed(plan, name)
    (tmp_path / "store-id").write_text("00000000-0000-0000-0000-000000000000")
    foreign = _copied(tasks, tmp_path, lambda *_: b"\0" * 4096)
    assert len(_rows(foreign)) == 20_000


def test_bytes_that_changed_on_disk_are_never_rows(
    plan: Plan, writers: Writers, topic: Callable[[], str], tmp_path: Path
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(20_000))
    tasks = _filed(plan, name)
    data_dir = next(
        Path(piece.path).parent.parent for task in tasks for piece in task.pieces if piece.path is not None
    )
    shutil.copy(data_dir / "store-id", tmp_path / "store-id")

    def with_a_wrong_bit(piece: Piece, content: bytes) -> bytes:
        data = bytearray(content)
        data[(piece.position + piece.end_position) // 2] ^= 1
        return bytes(data)

    damaged = _copied(tasks, tmp_path, with_a_wrong_bit)
    # The broker, which is asked for what follows, has the file as it was.
    assert [row[3] for row in _rows(damaged)] == [value for _, value in _values(20_000)]
    direct = [replace(task, scan=replace(task.scan, mode=ReadMode.DIRECT)) for task in damaged]
    with pytest.raises(SourceError, match=f"topic {name} partition 0 cannot be read at offset"):
        _rows(direct)


def test_deleted_records_are_an_error_or_left_out(
    plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(50))
    writers.delete_before(name, 0, 20)
    starting = f'{{"{name}":{{"0":10}}}}'
    with pytest.raises(DataLost, match=f"topic {name} partition 0: offsets 10 to 19 have been deleted"):
        plan(name, startingOffsets=starting)
    assert [row[1] for row in _rows(plan(name, startingOffsets=starting, failOnDataLoss="false"))] == list(
        range(20, 50)
    )
    assert len(_rows(plan(name))) == 30  # what is there now is all that was asked for


@pytest.mark.parametrize("deleted", [30, 50])
def test_records_that_are_deleted_between_plan_and_task(
    deleted: int, plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(50))
    tasks, patient = (plan(name, read__mode="broker", failOnDataLoss=fail) for fail in ("true", "false"))
    writers.delete_before(name, 0, deleted)
    with pytest.raises(DataLost, match="are not there any more"):
        _rows(tasks)
    assert [row[1] for row in _rows(patient)] == list(range(deleted, 50))


def test_the_broker_may_go_away_for_a_while(
    plan: Plan, own_server: MagnetarProcess, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(30_000))
    tasks = plan(name)
    impatient = plan(name, read__mode="broker", **{"kafkaConsumer__pollTimeoutMs": 1})
    own_server.kill()
    with pytest.raises(SourceError, match=r"has not answered for 0\.001 s.*start it or correct admin\.url"):
        _rows(impatient)
    own_server.restart()
    assert [row[3] for row in _rows(tasks)] == [value for _, value in _values(30_000)]


def test_options_choose_what_is_read(plan: Plan, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic(), 2)
    writers.kafka(name, _values(100), partition=0, timestamp_ms=1_000_000)
    writers.kafka(name, _values(100), partition=1, timestamp_ms=1_000_050)

    def offsets(**options: object) -> list[list[int]]:
        rows = _rows(plan(name, **options))
        found = [[row[1] for row in rows if row[0] == partition] for partition in (0, 1)]
        for each in found:
            assert each == list(range(each[0], each[-1] + 1)) if each else True
        return [[each[0], each[-1]] if each else [] for each in found]

    assert offsets() == [[0, 99], [0, 99]]
    assert offsets(startingOffsets=f'{{"{name}":{{"0":10,"1":-2}}}}') == [[10, 99], [0, 99]]
    assert offsets(endingOffsets=f'{{"{name}":{{"0":10,"1":-1}}}}') == [[0, 9], [0, 99]]
    assert offsets(startingTimestamp=1_000_060) == [[60, 99], [10, 99]]
    assert offsets(endingTimestamp=1_000_060) == [[0, 59], [0, 9]]
    assert offsets(endingTimestamp=9_000_000) == [[0, 99], [0, 99]]
    by_partition = f'{{"{name}":{{"0":1000099,"1":1000149}}}}'
    assert offsets(startingOffsetsByTimestamp=by_partition) == [[99, 99], [99, 99]]
    with pytest.raises(OptionError, match=f"startingTimestamp: {name}-0 has no record of 1000120 ms"):
        offsets(startingTimestamp=1_000_120)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(startingTimestamp=1_000_120, **latest) == [[], [70, 99]]
    assert offsets(subscribe=None, assign=f'{{"{name}":[1]}}') == [[], [0, 99]]
    assert offsets(subscribe=None, subscribePattern=f"{name}|x.*") == [[0, 99], [0, 99]]
    full = f"persistent://public/default/{name}"
    assert offsets(subscribe=full, startingOffsets=f'{{"{full}":{{"0":99,"1":98}}}}') == [[99, 99], [98, 99]]
    assert offsets(subscribe=f"public/default/{name}") == [[0, 99], [0, 99]]


def test_splitting(plan: Plan, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(10_000))
    assert len(plan(name)) == 1
    for options in ({"minPartitions": 7}, {"maxRecordsPerPartition": 1_500}):
        tasks = plan(name, **options)
        assert 7 <= len(tasks) <= 9
        assert [row[1] for row in _rows(tasks)] == list(range(10_000))


def test_what_does_not_exist_is_named(plan: Plan, writers: Writers, topic: Callable[[], str]) -> None:
    name = writers.create(topic())
    with pytest.raises(TopicError, match=r"option subscribe: there is no topic nowhere at http://"):
        plan("nowhere")
    with pytest.raises(TopicError, match=f"option assign: topic {name} has no partition 3, only 0 to 0"):
        plan(name, subscribe=None, assign=f'{{"{name}":[3]}}')
    with pytest.raises(TopicError, match=r"option subscribePattern: no topic matches 'no\.such'"):
        plan(name, subscribe=None, subscribePattern="no.such")
    with pytest.raises(OptionError, match=r"option subscribePattern: .* is not a regular expression"):
        plan(name, subscribe=None, subscribePattern="(")
    with pytest.raises(OptionError, match=f"option startingOffsets leaves out {name}-0"):
        plan(name, startingOffsets='{"other":{"0":1}}')
    with pytest.raises(OptionError, match="option endingOffsets"):
        plan(name, endingOffsets=f'{{"{name}":{{"0":1}}}}')


def test_without_admin_url_the_usual_port_is_tried_and_the_option_named(
    plan: Plan,
    own_server: MagnetarProcess,
    writers: Writers,
    topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = writers.create(topic())
    monkeypatch.setattr("magnetar.pipelines.connector.read.address.HTTP_PORT_DEFAULT", own_server.http_port)
    for known in (
        {"kafka__bootstrap__servers": own_server.bootstrap},
        {"service__url": own_server.pulsar_url},
    ):
        assert plan(name, admin__url=None, **known) == []
    (closed,) = free_ports(1)
    monkeypatch.setattr("magnetar.pipelines.connector.read.address.HTTP_PORT_DEFAULT", closed)
    with pytest.raises(
        OptionError, match=rf"kafka\.bootstrap\.servers: .*127\.0\.0\.1:{closed}; set admin\.url"
    ):
        plan(name, admin__url=None, kafka__bootstrap__servers=own_server.bootstrap)
    with pytest.raises(OptionError, match=rf"option service\.url: .*127\.0\.0\.1:{closed}; set admin\.url"):
        plan(name, admin__url=None, service__url="pulsar://127.0.0.1:6650,127.0.0.1:6651")


def test_a_slice_can_be_read_again_from_its_bytes(
    plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = writers.create(topic())
    writers.kafka(name, _values(5_000))
    (task,) = plan(name)
    digests = set()
    for _ in range(2):
        digest = hashlib.sha256()
        for part in task.slices():
            again = Slice.parse(part.to_bytes())
            assert again == part
            for columns in again.columns():
                assert columns.value is not None
                digest.update(columns.value.data[: columns.value.offsets[-1]].tobytes())
        digests.add(digest.digest())
    assert len(digests) == 1
    with pytest.raises(SchemaError, match="there is no column colour; the columns are key, value"):
        list(part.record_batches(["colour"]))
    with pytest.raises(SourceError, match="take it from the column plan"):
        Slice.parse(b'{"version":1}')
    with pytest.raises(SourceError, match="a plan of version 2"):
        Slice.parse(b'{"version":2}')


def test_a_chunked_message_is_one_row_wherever_reading_begins(
    plan: Plan, writers: Writers, topic: Callable[[], str]
) -> None:
    name = f"persistent://public/default/{topic()}"
    large = os.urandom(12 << 20)
    writers.pulsar_rows(name, [("before", b"1")], batched=False)
    writers.pulsar_rows(name, [("large", large)], batched=False, chunked=True)
    writers.pulsar_rows(name, [("after", b"2")], batched=False)
    short = name.rsplit("/", 1)[1]
    rows = _rows(plan(short))
    assert [(key, value) for _, _, key, value in rows] == [
        (b"before", b"1"),
        (b"large", large),
        (b"after", b"2"),
    ]
    last = rows[1][1]
    assert last > 1
    for tasks in (plan(short, startingOffsets=f'{{"{short}":{{"0":{last}}}}}'), plan(short, minPartitions=4)):
        assert [row for row in _rows(tasks) if row[1] >= last] == rows[1:]
