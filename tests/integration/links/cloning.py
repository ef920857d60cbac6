"""A real cluster of Kafka's, a real server, and the command that copies from one to the other."""

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.client.links import LinkRow, LinksClient
from magnetar.testing.server import MagnetarProcess, default_command

TIMEOUT_S = 60.0
_names = itertools.count()

Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], tuple[int, int]]


class Partition(NamedTuple):
    """What readers see of it: its first offset, its end, and its records (offset, key, value, headers, time)."""

    first: int
    end: int
    records: list[Row]


def new_topic(bootstrap: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    """A topic with a name that no other test has."""
    name = f"t{next(_names)}-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {}))])[name].result(TIMEOUT_S)
    return name


def read_partition(bootstrap: str, topic: str, partition: int) -> Partition:
    """As a reader of committed records, to the end."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads to the end",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    place = ck.TopicPartition(topic, partition)
    try:
        first, end = consumer.get_watermark_offsets(place, TIMEOUT_S)
        consumer.assign([ck.TopicPartition(topic, partition, first)])
        records: list[Row] = []
        while True:
            messages = consumer.consume(10_000, 0.2)
            for message in messages:
                error = message.error()
                if error is None:
                    headers: Any = message.headers() or []
                    offset = message.offset()
                    assert offset is not None
                    records.append((offset, message.key(), message.value(), headers, message.timestamp()))
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    return Partition(first, end, records)
                else:
                    raise ck.KafkaException(error)
    finally:
        consumer.close()


def read_topic(bootstrap: str, topic: str) -> list[Partition]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    count = len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    return [read_partition(bootstrap, topic, index) for index in range(count)]


def produce(bootstrap: str, topic: str, values: Iterable[bytes | None], **settings: Any) -> None:
    """Records with keys and headers, spread over the partitions by their keys."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **settings})
    for number, value in enumerate(values):
        headers: Any = [("n", b"%d" % number), ("n", b"\xff\x00"), ("none", None)]
        while True:
            try:
                producer.produce(topic, value, b"key-%d" % (number % 50), headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def transact(bootstrap: str, topic: str, name: str, values: Sequence[bytes], *, commits: bool) -> None:
    """One transaction."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, b"key-%d" % number)
    if commits:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.flush(TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)


def eventually(check: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Cloning:
    """`magnetar clone` as a process, for the length of a `with` block."""

    def __init__(
        self, source: str, server: MagnetarProcess, *arguments: str, folder: Path | None = None
    ) -> None:
        self._command = [
            *default_command(), "clone", source if "://" in source else f"kafka://{source}",
            "--url", server.http_url, *arguments,
        ]  # fmt: skip
        self._folder = folder
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._folder,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        if self.process.stdout is not None and not self.process.stdout.closed:
            said, _ = self.process.communicate()
            print(said)  # pytest shows it of a test that fails

    def run(self, timeout_s: float = 2 * TIMEOUT_S) -> tuple[int, str]:
        """Its exit code and what it says, when it has ended by itself."""
        with self:
            assert self.process is not None
            said, _ = self.process.communicate(timeout=timeout_s)
            return self.process.returncode, said


def clone(source: str, server: MagnetarProcess, *arguments: str, folder: Path | None = None) -> str:
    """Copy all of it; returns what the command has said."""
    code, said = Cloning(source, server, *arguments, folder=folder).run()
    assert code == 0, said
    assert "Traceback" not in said
    return said


def cut(server: MagnetarProcess, *topics: str) -> None:
    subprocess.run(
        [*default_command(), "links", "cut", *topics, "--url", server.http_url],
        check=True,
        capture_output=True,
    )


def link_of(server: MagnetarProcess, topic: str) -> LinkRow:
    client = LinksClient(server.http_url)
    try:
        (found,) = [one for one in client.all() if one.topic.endswith(f"/{topic}")]
        return found
    finally:
        client.close()


def is_linked(server: MagnetarProcess, topic: str) -> bool:
    """As the command lists it."""
    listed = subprocess.run(
        [*default_command(), "links", "list", "--url", server.http_url, "-o", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return any(row["topic"].endswith(f"/{topic}") for row in json.loads(listed.stdout))


def is_same(source: str, server: MagnetarProcess, topic: str) -> bool:
    """Whether the copy has all that the source has; all of it is read once both begin and end at the same offsets."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    if topic not in admin.list_topics(timeout=TIMEOUT_S).topics:
        return False
    if bounds(source, topic) != bounds(server.bootstrap, topic):
        return False
    return read_topic(source, topic) == read_topic(server.bootstrap, topic)


def bounds(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """The first offset and the end of each partition."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "asks for ends"})
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        places = [ck.TopicPartition(topic, index) for index in sorted(partitions)]
        return [consumer.get_watermark_offsets(place, TIMEOUT_S) for place in places]
    finally:
        consumer.close()


def check_same(source: str, server: MagnetarProcess, topic: str) -> list[Partition]:
    """Every offset, key, value, header and time is equal; returns what there is."""
    theirs, ours = read_topic(source, topic), read_topic(server.bootstrap, topic)
    assert [(one.first, one.end, len(one.records)) for one in ours] == [
        (one.first, one.end, len(one.records)) for one in theirs
    ]
    assert ours == theirs
    return ours
