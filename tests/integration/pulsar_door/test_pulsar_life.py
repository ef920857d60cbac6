"""The Pulsar door when things go wrong: bytes that are no frames, a server that is killed, a server that stops."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pulsar
import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.pulsar.commands import FRAME_PADDING_BYTES, frame_command, read_command
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandConnect,
    CommandPing,
    CommandProducer,
    CommandSend,
    MessageMetadata,
)

from .clients import new_client

TIMEOUT_S = 10.0
MESSAGE_BYTES_MAX = 5 << 20
CONNECT = BaseCommand(
    type=BaseCommand.CONNECT, connect=CommandConnect(client_version="raw", protocol_version=20)
)


class Raw:
    """A socket that speaks frames."""

    def __init__(self, server: MagnetarProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.pulsar_port), TIMEOUT_S)

    def say(self, command: BaseCommand, entry: bytes = b"") -> None:
        frame = frame_command(command)
        (size,) = struct.unpack_from(">I", frame)
        self.socket.sendall(struct.pack(">I", size + len(entry)) + frame[4:] + entry)

    def hear(self) -> BaseCommand | None:
        """The next command, None at the end."""
        with contextlib.suppress(ConnectionResetError):
            head = self._read(4)
            if head is not None:
                body = self._read(struct.unpack(">I", head)[0])
                assert body is not None
                kind, sub, _ = read_command(memoryview(body))
                command = BaseCommand(type=kind)
                name = next(f.name for f in BaseCommand.DESCRIPTOR.fields if f.number == kind)
                getattr(command, name).CopyFrom(sub)
                return command
        return None

    def _read(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                assert not data
                return None
            data += more
        return data

    def produce(self, topic: str) -> None:
        self.say(CONNECT)
        connected = self.hear()
        assert connected is not None
        assert connected.type == BaseCommand.CONNECTED
        self.say(
            BaseCommand(
                type=BaseCommand.PRODUCER,
                producer=CommandProducer(
                    topic=f"persistent://public/default/{topic}", producer_id=1, request_id=1
                ),
            )
        )
        success = self.hear()
        assert success is not None
        assert success.type == BaseCommand.PRODUCER_SUCCESS


@pytest.fixture
def raw(server: MagnetarProcess) -> Iterator[Raw]:
    connection = Raw(server)
    yield connection
    connection.socket.close()


def send_command(sequence_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=sequence_id))


def entry(payload: bytes) -> bytes:
    return frame_entry(MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1), payload)


def still_serves(server: MagnetarProcess) -> None:
    other = Raw(server)
    other.say(CONNECT)
    assert other.hear() is not None
    other.socket.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 100,
        b"\xff" * 100,
        struct.pack(">I", MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES + 1),
        struct.pack(">II", 8, 0xFFFFFFFF) + b"abcd",
        struct.pack(">II", 6, 2) + b"\x08\x46",  # a command of Pulsar 5
        frame_command(send_command(0)),
    ],
)
def test_nonsense_is_answered_with_the_end_of_the_connection(
    server: MagnetarProcess, raw: Raw, data: bytes
) -> None:
    raw.socket.sendall(data)
    assert raw.hear() is None
    still_serves(server)


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 20])
def test_a_client_that_stops_in_the_middle_of_a_frame_leaves_nothing(
    server: MagnetarProcess, raw: Raw, count: int
) -> None:
    raw.produce("half-a-frame")
    frame = frame_command(send_command(0))
    data = entry(bytes(100_000))
    raw.socket.sendall((struct.pack(">I", len(frame) - 4 + len(data)) + frame[4:] + data)[:count])
    raw.socket.shutdown(socket.SHUT_WR)
    assert raw.hear() is None
    still_serves(server)


def test_an_entry_may_be_as_large_as_it_may_be_and_no_larger(server: MagnetarProcess, raw: Raw) -> None:
    raw.produce("largest")
    command = send_command(0)
    room = MESSAGE_BYTES_MAX + FRAME_PADDING_BYTES - (len(frame_command(command)) - 4)
    head = len(entry(b""))
    raw.say(command, entry(bytes(room - head)))
    receipt = raw.hear()
    assert receipt is not None
    assert receipt.type == BaseCommand.SEND_RECEIPT
    with contextlib.suppress(ConnectionError):
        raw.say(command, entry(bytes(room - head + 1)))
    assert raw.hear() is None
    still_serves(server)


def test_a_client_that_takes_no_answers_is_not_read_for_ever(server: MagnetarProcess, raw: Raw) -> None:
    raw.say(CONNECT)
    assert raw.hear() is not None
    raw.socket.settimeout(2.0)
    pings = frame_command(BaseCommand(type=BaseCommand.PING, ping=CommandPing())) * 10_000

    def flood() -> None:
        for _ in range(10_000):
            raw.socket.sendall(pings)

    with pytest.raises(TimeoutError):
        flood()
    still_serves(server)
    # Once it listens again, all goes on.
    raw.socket.settimeout(TIMEOUT_S)
    for _ in range(1000):
        answer = raw.hear()
        assert answer is not None
        assert answer.type == BaseCommand.PONG


def test_a_stop_tells_producers_and_ends_the_connection() -> None:
    with MagnetarProcess() as server:
        raw = Raw(server)
        raw.produce("stopped")
        for number in range(100):
            raw.say(send_command(number), entry(b"x"))
        for _ in range(100):
            raw.hear()
        stopping = threading.Thread(target=server.terminate)
        stopping.start()
        notice = raw.hear()
        assert notice is not None
        assert notice.type == BaseCommand.CLOSE_PRODUCER
        assert notice.close_producer.producer_id == 1
        assert raw.hear() is None
        stopping.join()
        raw.socket.close()
        server.start()


@pytest.mark.crash
def test_what_was_acknowledged_is_there_after_a_kill() -> None:
    """The client goes on by itself; what was acknowledged to it is there, in order and once."""
    with MagnetarProcess() as server:
        client = new_client(server.pulsar_url)
        producer = client.create_producer(
            "killed", send_timeout_millis=60_000, block_if_queue_full=True, max_pending_messages=500
        )
        acknowledged: list[int] = []
        done = threading.Event()

        def publish() -> None:
            number = 0
            while not done.is_set():
                producer.send_async(
                    b"%d" % number,
                    lambda result, _, number=number: (
                        acknowledged.append(number) if result == pulsar.Result.Ok else None
                    ),
                )
                number += 1
                time.sleep(0.0005)
            producer.flush()

        publishing = threading.Thread(target=publish)
        publishing.start()
        for _ in range(2):
            time.sleep(1.0)
            before = len(acknowledged)
            assert before
            server.kill()
            server.start()
        time.sleep(1.0)
        done.set()
        publishing.join(60)
        assert not publishing.is_alive()
        assert acknowledged == list(range(len(acknowledged)))
        reader = client.create_reader("killed", pulsar.MessageId.earliest)
        found: list[int] = []
        while reader.has_message_available():
            found.append(int(reader.read_next(10_000).data()))
        # What was stored but not acknowledged when the server died is sent again, so it may be there twice.
        assert sorted(set(found)) == acknowledged
        first_seen = list(dict.fromkeys(found))
        assert first_seen == sorted(first_seen)
        client.close()
