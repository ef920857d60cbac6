"""A data folder that is moved while a server works in it, with another one in its place: neither gets the other's."""

import hashlib
import shutil
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess

TOPICS = ("first", "second", "third")


def write(server: MagnetarProcess, topic: str) -> None:
    """A topic with one record."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap, "acks": "all"})
    failures: list[object] = []
    producer.produce(topic, topic.encode(), on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None]


def found(server: MagnetarProcess) -> set[str]:
    """The topics, each of which has its record."""
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    try:
        topics = {name for name in consumer.list_topics(timeout=30).topics if name in TOPICS}
        for topic in topics:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            assert message.value() == topic.encode()
        return topics
    finally:
        consumer.close()


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_backup_that_is_put_back_beneath_a_server_stays_as_it_is(tmp_path: Path) -> None:
    # Its stop noted its transactions in the backup, which no server started with from then on.
    data, backup, moved = (tmp_path / name for name in ("data", "backup", "moved"))
    with MagnetarProcess(data_dir=data) as server:
        write(server, "first")
        server.kill()
        shutil.copytree(data, backup)
        server.start()
        write(server, "second")
        data.rename(moved)
        shutil.copytree(backup, data)
        before = contents(data)
        write(server, "third")
        server.terminate()
        assert contents(data) == before
        assert "Traceback" not in server.log
        server.start()
        assert found(server) == {"first"}
    with MagnetarProcess(data_dir=moved) as server:
        assert found(server) == set(TOPICS)


def test_two_servers_whose_folders_have_had_one_name_leave_each_other_alone(tmp_path: Path) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    with MagnetarProcess(data_dir=data) as one:
        write(one, "first")
        data.rename(moved)
        with MagnetarProcess(data_dir=data) as other:
            write(other, "second")
            write(one, "third")
            one.terminate()
            other.kill()
            other.start()
            assert found(other) == {"second"}
    with MagnetarProcess(data_dir=moved) as one:
        assert found(one) == {"first", "third"}
