"""What confluent-kafka is given of transactions after the server's memory of them, or their log, was damaged."""

import asyncio
import itertools
import json
import struct
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from magnetar.broker.topics.roots import SNAPSHOTS_ROOT
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.testing.server import MagnetarProcess
from tests.integration.partition_reader import read_partition

pytestmark = pytest.mark.clients

TIMEOUT_S = 30
TOPIC = "t"
RECORD = struct.Struct(">IIQqqq")  # length, checksum, ledger, entry, last offset, timestamp
_names = itertools.count()


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


def transactional(server: MagnetarProcess, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def history(server: MagnetarProcess) -> Producer:
    """Offset 0 is aborted, 2 committed, 4 open; their markers are between."""
    producer = transactional(server, "id")
    for value, commit in ((b"aborted", False), (b"committed", True), (b"open", None)):
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
    return producer


def read(server: MagnetarProcess, isolation: str = "read_committed", start: int = 0) -> list[bytes]:
    """All values from an offset on; KafkaException with the broker's error when it refuses."""
    settings = {"auto.offset.reset": "error"}
    found = read_partition(
        server, TOPIC, 0, start, isolation=isolation, settings=settings, timeout_s=TIMEOUT_S
    )
    return [message.value() or b"" for message in found]


def change_snapshots(data_dir: Path, change: Callable[[bytes], bytes | None]) -> int:
    """Write other producer snapshots, or none, while the server is down; how many values there were."""

    async def do() -> int:
        store = SqliteMetadataStore(data_dir / "metadata.sqlite")
        try:
            found = await store.scan(SNAPSHOTS_ROOT)
            for path, stored in found:
                changed = change(stored.value)
                if changed is None:
                    await store.delete(path)
                elif changed != stored.value:
                    await store.put(path, changed)
            return len(found)
        finally:
            await store.close()

    return asyncio.run(do())


def damage_entry(data_dir: Path, offset: int) -> None:
    """Flip a bit of the body of the entry at `offset`."""
    (segment,) = (data_dir / "segments").rglob("*.segment")
    data = bytearray(segment.read_bytes())
    position = 0
    while True:
        length, *_, last_offset, _ = RECORD.unpack_from(data, position)
        assert length, f"no entry at offset {offset}"
        if last_offset == offset:
            break
        position += RECORD.size + length
    data[position + RECORD.size + length // 2] ^= 1
    segment.write_bytes(data)


def test_a_damaged_snapshot_shows_neither_aborted_nor_open_records(server: MagnetarProcess) -> None:
    producer = history(server)
    server.terminate()
    assert change_snapshots(server.data_dir, lambda value: value[:-1])
    server.start()
    assert read(server) == [b"committed"]
    assert read(server, "read_uncommitted") == [b"aborted", b"committed", b"open"]
    producer.abort_transaction(TIMEOUT_S)
    assert read(server) == [b"committed"]


def test_behind_an_unreadable_marker_readers_of_committed_records_are_refused(
    server: MagnetarProcess,
) -> None:
    producer = history(server)
    server.terminate()
    assert change_snapshots(server.data_dir, lambda _: None)
    damage_entry(server.data_dir, 1)
    server.start()
    with pytest.raises(KafkaException) as refused:
        read(server)
    assert refused.value.args[0].code() == KafkaError.INVALID_MSG, "librdkafka's name of CORRUPT_MESSAGE"
    with pytest.raises(KafkaException):
        read(server, start=6)  # also who begins at the end
    assert read(server, "read_uncommitted", start=2) == [b"committed", b"open"]
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    latest = {TopicPartition(TOPIC, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    for isolation, is_told in (
        (IsolationLevel.READ_COMMITTED, False),
        (IsolationLevel.READ_UNCOMMITTED, True),
    ):
        (asked,) = admin.list_offsets(latest, isolation_level=isolation).values()
        assert (asked.exception(TIMEOUT_S) is None) is is_told
    with urllib.request.urlopen(f"{server.http_url}/health", timeout=TIMEOUT_S) as answer:
        assert "offset 1 cannot be read" in json.load(answer)["notes"]["transactions"]
    client = pulsar.Client(server.pulsar_url, operation_timeout_seconds=2)
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(f"{TOPIC}-partition-0", "s", initial_position=pulsar.InitialPosition.Earliest)
    client.close()
    plain = Producer({"bootstrap.servers": server.bootstrap})
    plain.produce(TOPIC, b"plain", partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    assert read(server, "read_uncommitted", start=5) == [b"plain"]
    # The abort is decided and its marker written, though the server does not know here what was open.
    producer.abort_transaction(TIMEOUT_S)
    server.terminate()
    assert not change_snapshots(server.data_dir, bytes), "no snapshot is made of what is not known"
    server.start()
    with pytest.raises(KafkaException):
        read(server)
    # With the records up to the damage gone, everything behind it is known.
    admin = AdminClient({"bootstrap.servers": server.bootstrap})  # the other one's connection is gone
    for future in admin.delete_records([TopicPartition(TOPIC, 0, 2)]).values():
        future.result(TIMEOUT_S)
    server.restart()
    assert read(server, start=2) == [b"committed", b"plain"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thousands_of_aborted_transactions_stay_aborted_over_restarts(server: MagnetarProcess) -> None:
    threads_count, rounds = 8, 200  # four blocks of a snapshot, three of them full
    for generation in range(2):

        def abort(number: int, generation: int = generation) -> None:
            producer = transactional(server, f"id-{number}")
            for sequence in range(rounds):
                producer.begin_transaction()
                producer.produce(TOPIC, b"aborted", partition=0)
                if sequence % 100 == 0:
                    producer.produce(TOPIC, b"aborted, too", partition=0)
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
            producer.begin_transaction()
            producer.produce(TOPIC, b"%d %d" % (generation, number), partition=0)
            producer.commit_transaction(TIMEOUT_S)

        threads = [threading.Thread(target=abort, args=(number,)) for number in range(threads_count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if generation:
            server.terminate()
            server.start()
        else:
            server.kill()
            server.restart()
        expected = sorted(
            b"%d %d" % pair for pair in itertools.product(range(generation + 1), range(threads_count))
        )
        assert sorted(read(server)) == expected
    server.terminate()
    blocks = -(-threads_count * rounds * 2 // 1024)
    assert change_snapshots(server.data_dir, bytes) == 1 + blocks
