"""A reader meets a damaged entry: the operator hears which ledger it is, by /health and the metrics."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import AdminClient

from magnetar.client.rest import Range, RestClient
from magnetar.pipelines.connector.read.errors import SourceError
from magnetar.pipelines.connector.read.options import ReadMode
from magnetar.pipelines.connector.read.pieces import Scan, read_piece
from magnetar.pipelines.connector.read.plan import pieces_of
from magnetar.testing.server import MagnetarProcess
from magnetar.wire.columns import Wanted

from .wire import eventually

COUNT = 400
BODY = b"x" * 2_000


def health(server: MagnetarProcess) -> tuple[str, dict[str, str]]:
    with urllib.request.urlopen(f"{server.http_url}/health", timeout=10) as answer:
        found = json.loads(answer.read())
    return found["status"], found["notes"]


def damaged_ledgers(server: MagnetarProcess) -> list[str]:
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith("magnetar_store_damaged_ledger{")]


def fill(server: MagnetarProcess) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    for number in range(COUNT):
        producer.produce("t", b"%d " % number + BODY)
        if number % 4 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def damage(data_dir: Path) -> tuple[int, Path]:
    """Flip a bit in the middle of the largest segment; its ledger and file."""
    path = max((data_dir / "segments").rglob("*.segment"), key=lambda one: one.stat().st_size)
    with path.open("r+b") as file:
        content = file.read()
        at = content.index(BODY, len(content) // 2) + 50
        file.seek(at)
        file.write(bytes([content[at] ^ 4]))
    return int.from_bytes(content[8:16], "big"), path


def by_kafka(server: MagnetarProcess, mode: ReadMode) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    until_s = time.monotonic() + 60
    while not health(server)[1].get("damage") and time.monotonic() < until_s:
        consumer.poll(1)
    consumer.close()


def by_pulsar(server: MagnetarProcess, mode: ReadMode) -> None:
    client = pulsar.Client(server.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reader = client.create_reader("persistent://public/default/t-partition-0", pulsar.MessageId.earliest)
    until_s = time.monotonic() + 60
    while not health(server)[1].get("damage") and time.monotonic() < until_s:
        try:
            reader.read_next(1_000)
        except pulsar.Timeout:
            continue
    client.close()


def by_spark(server: MagnetarProcess, mode: ReadMode) -> None:
    """What a task of Spark's does with a piece of a topic."""
    client = RestClient(server.http_url)
    answer = client.segments([Range("t", 0, 0, COUNT)])
    (located,) = answer.partitions
    scan = Scan(server.http_url, answer.store, None, time.time(), mode, False, True, 30.0)
    pieces = pieces_of(located, 0, COUNT)
    assert pieces[0].path is not None
    with pytest.raises(SourceError, match=r"damaged|not what was stored"):
        sum(columns.count for piece in pieces for columns in read_piece(scan, piece, Wanted()))


Read = Callable[[MagnetarProcess, ReadMode], None]


@pytest.mark.slow
@pytest.mark.clients
@pytest.mark.parametrize(
    ("read", "mode"),
    [
        (by_kafka, ReadMode.BROKER),
        (by_pulsar, ReadMode.BROKER),
        (by_spark, ReadMode.AUTO),
        (by_spark, ReadMode.DIRECT),
    ],
)
def test_the_operator_hears_of_damage_that_a_reader_meets(tmp_path: Path, read: Read, mode: ReadMode) -> None:
    """Only a line of the log and a number without a name said so."""
    data_dir = tmp_path / "data"
    with MagnetarProcess(data_dir=data_dir) as server:
        fill(server)
        server.terminate()
        ledger_id, path = damage(data_dir)
        server.start()
        assert health(server) == ("ok", {})
        assert damaged_ledgers(server) == []
        read(server, mode)
        status, notes = health(server)
        assert status == "ok", "the server serves all the rest"
        assert f" of ledger {ledger_id} is damaged" in notes["damage"]
        assert str(path) in notes["damage"]
        assert damaged_ledgers(server) == [f'magnetar_store_damaged_ledger{{ledger="{ledger_id}"}} 1.0']
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.delete_topics(["t"])["t"].result(30)
        eventually(lambda: health(server) == ("ok", {}), "what was damaged is gone")
        assert damaged_ledgers(server) == []
        assert "Traceback" not in server.log
