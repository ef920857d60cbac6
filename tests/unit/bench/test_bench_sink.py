"""The broker that only answers, with the client that it is for; and a client that has a processor of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from bench import process
from bench.process import RunFailed
from bench.servers import Sink
from bench.sink import BATCH_BYTES, PARTITIONS, batch

SIZE = 100
TOPIC = f"bench-{SIZE}"
COUNT = 50_000


@pytest.fixture
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink"))
    made.start()
    yield made
    made.discard()


def test_what_is_produced_is_acknowledged_at_ascending_offsets(sink: Sink) -> None:
    offsets: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        offsets[message.partition() or 0].append(message.offset() or 0)

    producer = confluent_kafka.Producer({"bootstrap.servers": sink.bootstrap, "acks": "all"})
    for number in range(COUNT):
        producer.produce(TOPIC, bytes(SIZE), partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert all(found == list(range(COUNT // PARTITIONS)) for found in offsets.values())


def test_a_consumer_gets_records_without_end_one_after_the_other(sink: Sink) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": sink.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 1, confluent_kafka.OFFSET_BEGINNING)])
    found: list[confluent_kafka.Message] = []
    deadline = time.monotonic() + 30
    while len(found) < COUNT and time.monotonic() < deadline:
        found += consumer.consume(10_000, 1.0)
    consumer.close()
    assert [message.offset() for message in found[:COUNT]] == list(range(COUNT))
    assert {len(message.value() or b"") for message in found} == {SIZE}


@pytest.mark.parametrize("size", [100, 1024, 16 * 1024])
def test_a_batch_is_about_a_megabyte(size: int) -> None:
    assert BATCH_BYTES - 2 * size - 100 < len(batch(size)) <= BATCH_BYTES


def test_a_process_has_a_core_of_its_own_and_then_all_again() -> None:
    everywhere = os.sched_getaffinity(0)
    core = max(everywhere)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with process.on_core(child.pid, core):
            assert os.sched_getaffinity(child.pid) == {core}
        assert os.sched_getaffinity(child.pid) == everywhere
        child.communicate(b"\n")
    with pytest.raises(RunFailed), process.on_core(child.pid, 10_000):
        pass
    with pytest.raises(RunFailed), process.on_core(child.pid, core):  # it has ended
        pass
