"""A Kafka client that sends what a test gives it, right or wrong, and shows what comes back."""

import importlib
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from crc32c import crc32c

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.header import decode_response_header, encode_request_header
from magnetar.wire.kafka.messages import asking
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from magnetar.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from magnetar.wire.kafka.runtime import Buffer

PATIENCE_S = 30.0


def now_ms() -> int:
    return round(time.time() * 1000)


def record_batch(
    values: list[bytes],
    *,
    timestamp_ms: int | None = None,
    attributes: int = 0,
    count: int | None = None,
    magic: int = 2,
    producer: tuple[int, int, int] = (-1, -1, -1),
    wrong_crc: bool = False,
) -> bytes:
    """A batch of keyless records, and what is wrong with it."""
    stamp = now_ms() if timestamp_ms is None else timestamp_ms
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\0\0" + _zigzag(delta) + _zigzag(-1) + _zigzag(len(value)) + value + b"\0"
        records += _zigzag(len(body)) + body
    claimed = len(values) if count is None else count
    head = struct.pack(">hiqqqhii", attributes, claimed - 1, stamp, stamp, *producer, claimed)
    checked = head + records
    crc = crc32c(checked) ^ wrong_crc
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, magic, crc) + checked


def _zigzag(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def frame(name: str, version: int, request: Any, correlation_id: int = 1) -> bytes:
    """One request with its size in front."""
    codec = importlib.import_module(f"magnetar.wire.kafka.messages.{name}")
    parts: list[Buffer] = [encode_request_header(codec.API_KEY, version, correlation_id, "test")]
    asking.load(codec.API_KEY).encode_request(version, request, parts)
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


class Wire:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        """Exactly `size` bytes; fewer when the server closes first."""
        out = bytearray()
        while len(out) < size:
            try:
                some = self.socket.recv(size - len(out))
            except ConnectionResetError:
                break
            if not some:
                break
            out += some
        return bytes(out)

    def is_closed(self) -> bool:
        """Whether the server closes without another byte (waits for it)."""
        return self.receive(1) == b""

    def answer(self, name: str, version: int) -> Any:
        codec = importlib.import_module(f"magnetar.wire.kafka.messages.{name}")
        (size,) = struct.unpack(">i", self.receive(4))
        body = memoryview(self.receive(size))
        assert len(body) == size
        self.correlation_id, position = decode_response_header(body, codec.API_KEY, version)
        return asking.load(codec.API_KEY).decode_response(version, body, position)

    def ask(self, name: str, version: int, request: Any) -> Any:
        self.send(frame(name, version, request))
        return self.answer(name, version)

    def log_in(self, user: str, password: str) -> None:
        """Log in by PLAIN; AssertionError where the client is not let in."""
        assert self.ask("sasl_handshake", 1, SaslHandshakeRequest("PLAIN")).error_code == 0
        shown = f"\0{user}\0{password}".encode()
        assert self.ask("sasl_authenticate", 2, SaslAuthenticateRequest(shown)).error_code == 0

    # --- the requests that most tests need ---------------------------------------------------------------------------

    def create(self, topic: str) -> None:
        """Make `topic` by asking for it, and wait until it is there."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name=topic)]))
            if found.topics[0].error_code == 0:
                return
            assert time.monotonic() < deadline, found

    def produce(
        self, topic: str, batch: bytes | None, *, acks: int = -1, version: int = 9, index: int = 0
    ) -> Any:
        """The answer for the one partition."""
        request = produce_request(topic, batch, acks=acks, index=index)
        return self.ask("produce", version, request).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, version: int = 12, index: int = 0, **wanted: Any) -> Any:
        """The answer for the one partition."""
        answer = self.ask("fetch", version, fetch_request(topic, offset, index=index, **wanted))
        assert answer.error_code == 0
        return answer.responses[0].partitions[0]

    def offset_of(self, topic: str, timestamp_ms: int) -> tuple[int, int]:
        """(error code, offset) as ListOffsets says."""
        partition = ListOffsetsPartition(0, timestamp=timestamp_ms)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(topic, [partition])])
        found = self.ask("list_offsets", 7, request).topics[0].partitions[0]
        return found.error_code, found.offset


def produce_request(topic: str, batch: bytes | None, *, acks: int = -1, index: int = 0) -> ProduceRequest:
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(index, batch)])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)


def fetch_request(
    topic: str,
    offset: int,
    *,
    index: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> FetchRequest:
    partition = FetchPartition(
        index,
        fetch_offset=offset,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic, partitions=[partition])],
    )


def payload(row: Any) -> bytes:
    """The record batches of a fetched partition, joined."""
    return bytes(row.records or b"")


def values_of(batches: bytes) -> list[bytes]:
    """Every record's value, batch by batch."""
    from magnetar.wire.kafka.record_reader import read_records
    from magnetar.wire.kafka.records import LENGTH_PREFIX, read_header

    view = memoryview(batches)
    found: list[bytes] = []
    while len(view) > LENGTH_PREFIX:
        header = read_header(view)
        end = LENGTH_PREFIX + header.batch_length
        if end > len(view):
            break
        found += [record.value or b"" for record in read_records(view[:end], header)]
        view = view[end:]
    return found


def resident_bytes(server: MagnetarProcess) -> int:
    """What the server's process occupies in memory."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def eventually(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until `true()`; fail with `what` after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
