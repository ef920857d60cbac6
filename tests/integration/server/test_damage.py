"""A killed server's journal is damaged: no start over that, the doctor goes on, and clients read what is kept."""

import json
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

from magnetar.storage.local.catalogue import read_catalogue
from magnetar.storage.local.disk import RealDisk
from magnetar.storage.local.replay import Whole, survey, walk
from magnetar.testing.server import MagnetarProcess, ServerFailed

TOPICS = ("first", "second")
COUNT = 40


def produce(bootstrap: str, topic: str, number: int) -> int:
    """One idempotent record for itself; its offset."""
    answers: list[int] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def answered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        answers.append(offset)

    producer.produce(topic, b"%d" % number, on_delivery=answered)
    assert producer.flush(30) == 0
    return answers[0]


def consume(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """Offset and number of every record."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    partition = confluent_kafka.TopicPartition(topic, 0, 0)
    consumer.assign([partition])
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    found: list[tuple[int, int]] = []
    while len(found) < end:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        value, offset = message.value(), message.offset()
        assert value is not None
        assert offset is not None
        found.append((offset, int(value.rpartition(b"-")[2])))
    consumer.close()
    return found


def doctor(data_dir: Path, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "magnetar", "doctor", "--data-dir", str(data_dir), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def damage_round_of(data_dir: Path, topic_entry: bytes, wrong_bits: int) -> tuple[str, int]:
    """Turn bits of a byte of the round that has this record; its file and place."""
    view = read_catalogue(memoryview((data_dir / "catalogue").read_bytes()))
    assert view is not None
    found = survey(RealDisk(), data_dir / "journal", view.known)
    places: dict[str, int] = {}
    try:
        for item in walk(found, view.known):
            assert isinstance(item, Whole)
            path = item.use.file.path
            position = places.get(path.name, 0)
            size = 64 + item.head.length
            places[path.name] = position + -(-size // 4096) * 4096
            if any(topic_entry in bytes(record.body) for record in item.records):
                with path.open("r+b") as file:
                    file.seek(position + 80)
                    byte = file.read(1)[0]
                    file.seek(position + 80)
                    file.write(bytes([byte ^ wrong_bits]))
                return path.name, position
    finally:
        for ring_file in found.files():
            ring_file.file.close()
    raise AssertionError(f"{topic_entry!r} is not in the journal")


@pytest.mark.slow
@pytest.mark.parametrize(("wrong_bits", "kept"), [(0xFF, 20), (16, COUNT)])
def test_a_server_with_a_damaged_journal_goes_on_after_the_doctor(
    tmp_path: Path, wrong_bits: int, kept: int
) -> None:
    """Of the topic with the damaged round all is kept up to there; if a single bit was wrong, all."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with MagnetarProcess(data_dir=data_dir) as server:
        for topic in TOPICS:
            for number in range(3):
                assert produce(server.bootstrap, topic, number) == number
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        for number in range(3, COUNT):
            for topic in TOPICS:
                producer.produce(
                    topic, b"%d" % number if number != 20 else b"%s-%d" % (topic.encode(), number)
                )
                assert producer.flush(30) == 0
        server.kill()
        file, position = damage_round_of(data_dir, b"second-20", wrong_bits)
        with pytest.raises(ServerFailed) as failed:
            server.start()
        told = f"the journal is damaged: {file} at byte {position}, round "
        assert told in str(failed.value)
        assert "Traceback" not in str(failed.value)
        code, out, err = doctor(data_dir)
        assert (code, err) == (1, "")
        assert f"damage    journal    {file} at byte {position}, round" in out
        code, out, err = doctor(data_dir, "--repair", "--output", "json")
        assert (code, err) == (0, ""), out
        assert json.loads(out)["healthy"] is True
        server.start()
        numbers = [number for _, number in consume(server.bootstrap, "first")]
        assert numbers == list(range(COUNT))
        assert [number for _, number in consume(server.bootstrap, "second")] == list(range(kept))
        for topic, end in (("first", COUNT), ("second", kept)):
            assert produce(server.bootstrap, topic, 1000) == end
        server.restart()
        assert consume(server.bootstrap, "second")[-1] == (kept, 1000)
