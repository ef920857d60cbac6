"""A door of another package, installed as its users install it, beside Kafka's and Pulsar's."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from io import BufferedRWPair
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from magnetar.testing.server import MagnetarProcess, free_ports

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "line-protocol"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example was installed, outside of the environment that the tests run in."""
    target = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index"]
    subprocess.run(
        [*pip, "--no-deps", "--no-build-isolation", "--target", str(target), str(EXAMPLE)], check=True
    )
    return target


@pytest.fixture
def line(installed: Path) -> Iterator[tuple[MagnetarProcess, int]]:
    [port] = free_ports(1)
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"messagingProtocols": "line", "line.port": str(port)}
    with MagnetarProcess(settings=settings, environment={"PYTHONPATH": path}) as server:
        yield server, port


def say(stream: BufferedRWPair, text: str) -> str:
    stream.write(text.encode() + b"\n")
    stream.flush()
    return stream.readline().decode().rstrip("\n")


def test_an_installed_protocol_shares_topics_with_kafka_clients(line: tuple[MagnetarProcess, int]) -> None:
    server, port = line
    producer = Producer({"bootstrap.servers": server.bootstrap, "compression.type": "zstd"})
    producer.produce("talk", b"from kafka")
    assert producer.flush(30) == 0
    with socket.create_connection(("localhost", port), timeout=30) as connection:
        stream = connection.makefile("rwb")
        assert say(stream, "PUT talk from a line, with words") == "OK 1"
        assert say(stream, "GET talk 0") == "MESSAGE 0 from kafka"
        assert say(stream, "GET talk 1") == "MESSAGE 1 from a line, with words"
        assert say(stream, "GET talk 2") == "NONE"
        assert say(stream, "GET talk 3").startswith("ERROR OFFSET_OUT_OF_RANGE ")
        assert say(stream, "PUT nothing here").startswith("ERROR UNKNOWN_TOPIC ")
        assert say(stream, "PUT t/o/p/i/c x").startswith("ERROR INVALID_TOPIC_NAME ")
        assert say(stream, "HELLO").startswith("ERROR BAD_REQUEST ")
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["talk"])
    values: list[bytes | None] = []
    while len(values) < 2:
        message = consumer.poll(30)
        assert message is not None
        values.append(message.value())
    consumer.close()
    assert values == [b"from kafka", b"from a line, with words"]


def test_lines_that_come_together_are_answered_in_order_and_read_on(
    line: tuple[MagnetarProcess, int],
) -> None:
    server, port = line
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("many", b"0")
    assert producer.flush(30) == 0
    with socket.create_connection(("localhost", port), timeout=30) as connection:
        stream = connection.makefile("rwb")
        for first in (1, 101):
            numbers = range(first, first + 100)
            stream.write(b"".join(b"PUT many %d\nGET many %d\n" % (number, number) for number in numbers))
            stream.flush()
            for number in numbers:
                assert stream.readline() == b"OK %d\n" % number
                assert stream.readline() == b"MESSAGE %d %d\n" % (number, number)


def test_what_is_acknowledged_survives_a_kill(line: tuple[MagnetarProcess, int]) -> None:
    server, port = line
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("kept", b"0")
    assert producer.flush(30) == 0
    with socket.create_connection(("localhost", port), timeout=30) as connection:
        assert say(connection.makefile("rwb"), "PUT kept 1") == "OK 1"
    server.kill()
    server.restart()
    with socket.create_connection(("localhost", port), timeout=30) as connection:
        assert say(connection.makefile("rwb"), "GET kept 1") == "MESSAGE 1 1"


def test_lines_of_transactions_are_read_when_they_are_committed(line: tuple[MagnetarProcess, int]) -> None:
    server, port = line
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    for text, commits in (("aborted", False), ("committed", True)):
        producer.begin_transaction()
        producer.produce("decided", text.encode())
        assert producer.flush(30) == 0
        with socket.create_connection(("localhost", port), timeout=30) as connection:
            assert say(connection.makefile("rwb"), "GET decided 0") == "NONE"
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)
    with socket.create_connection(("localhost", port), timeout=30) as connection:
        assert say(connection.makefile("rwb"), "GET decided 0") == "MESSAGE 2 committed"
