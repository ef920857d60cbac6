"""Kafka's Java client and `kafka-transactions`, which speak KIP-890's protocol, at a server that may be killed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.class_archives import kafka_tool
from tests.integration.java_tools import TOOL_S, KafkaTools, needs_java
from tests.java_classes import with_kafka

pytestmark = needs_java

PROGRAM: Final = Path(__file__).parent / "java" / "Transactions.java"
TOOL: Final = "org.apache.kafka.tools.TransactionsCommand"
TIMEOUT_S: Final = 60
RECORDS: Final = 30


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process
        assert "Traceback" not in process.log, process.log[-5000:]


def make(server: MagnetarProcess, **topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        made.result(TIMEOUT_S)


def read(server: MagnetarProcess, topic: str, partitions: int) -> list[str]:
    """What a reader of committed records sees, as librdkafka does."""
    reader = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[str] = []
    left = partitions
    while left:
        message = reader.poll(TIMEOUT_S)
        assert message is not None, "the server sent nothing"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left -= 1
        else:
            values.append((message.value() or b"").decode())
    reader.close()
    return values


@pytest.mark.parametrize("kills", [(), ("filled 5", "filled 15")], ids=["alive", "killed"])
def test_a_java_producer_and_copier_do_everything_once(
    server: MagnetarProcess, tmp_path: Path, kills: tuple[str, ...]
) -> None:
    make(server, source=3, target=2)
    program = [*kafka_tool(), "-cp", with_kafka(PROGRAM), PROGRAM.stem]
    command = [*program, server.bootstrap, "source", "target", str(RECORDS)]
    printed: list[str] = []
    errors = tmp_path / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as running,
    ):
        try:
            assert running.stdout is not None
            for line in running.stdout:
                printed.append(line.strip())
                if line.strip() in kills:
                    server.kill()
                    server.restart()
            running.wait(TOOL_S)
        finally:
            running.kill()
    ended = printed[-4:], errors.read_text()
    assert ended[0] == ["copied 30", "epochs 3", "fenced by ProducerFencedException", "done"], ended
    wanted = sorted(str(number) for number in range(RECORDS))
    assert sorted(read(server, "source", 3)) == wanted
    assert sorted(read(server, "target", 2)) == wanted


def test_kafkas_features_tool_shows_the_finalized_level(kafka_tools: KafkaTools) -> None:
    shown = kafka_tools.run("org.apache.kafka.tools.FeatureCommand", "describe")
    (line,) = shown.strip().splitlines()
    assert line.split()[:2] == ["Feature:", "transaction.version"]
    assert "FinalizedVersionLevel: 2" in line


def test_kafkas_transactions_tool_shows_and_ends_what_is_open(
    server: MagnetarProcess, kafka_tools: KafkaTools
) -> None:
    make(server, t=1)
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": "open-one",
            "transaction.timeout.ms": 900_000,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"x")
    assert producer.flush(TIMEOUT_S) == 0

    def rows(*arguments: str) -> list[list[str]]:
        head, *found = kafka_tools.run(TOOL, *arguments).splitlines()
        assert head.startswith(("TransactionalId", "CoordinatorId", "ProducerId", "Topic")), head
        return [row.split() for row in found]

    described = rows("describe", "--transactional-id", "open-one")
    (row,) = described
    assert row[1] == "open-one"
    assert "Ongoing" in row
    assert row[-1] == "t-0"
    assert [row[0] for row in rows("list")] == ["open-one"]
    assert rows("list", "--duration-filter", "3600000") == []
    assert [row[0] for row in rows("list", "--transactional-id-pattern", "open-.*")] == ["open-one"]
    assert rows("describe-producers", "--topic", "t", "--partition", "0")[0][1] == "0"
    assert rows("find-hanging", "--topic", "t") == []
    where = ("--topic", "t", "--partition", "0")
    kafka_tools.run(TOOL, "abort", *where, "--start-offset", "0")
    assert rows("describe-producers", *where)[0][-1] == "None", "nothing is open in the partition"
    kafka_tools.run(TOOL, "forceTerminateTransaction", "--transactionalId", "open-one")
    assert read(server, "t", 1) == []
    assert "CompleteAbort" in rows("list")[0] or "Empty" in rows("list")[0]
