"""Whatever a client sends, it gets Kafka's error code or is cut off with one line in the log; others do not notice."""

import random
import socket
import struct

import pytest

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

from .wire import (
    Wire,
    eventually,
    fetch_request,
    frame,
    payload,
    produce_request,
    record_batch,
    resident_bytes,
    values_of,
)

MIB = 1 << 20


def closings(server: MagnetarProcess) -> int:
    return server.log.count("closing connection")


def still_serves(server: MagnetarProcess) -> None:
    with Wire(server.ports[0]) as other:
        assert other.ask("api_versions", 3, ApiVersionsRequest("a", "1")).error_code == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 0), id="empty frame"),
        pytest.param(struct.pack(">i", 1 << 30), id="frame of a gigabyte"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512), id="tls"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown api"),
        pytest.param(struct.pack(">ihhih", 10, -1, 0, 1, -1), id="negative api"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, 3, -1, 1, -1), id="negative version"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 1, 30000), id="client id longer than the frame"),
        pytest.param(struct.pack(">ihhih", 10, 3, 1, 1, -2), id="client id of negative length"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1 << 30), id="array longer than the frame"),
        pytest.param(struct.pack(">ihhihi", 14, 3, 1, 1, -1, -7), id="array of negative length"),
        pytest.param(struct.pack(">ihh", 4, 3, 1), id="header cut short"),
        pytest.param(struct.pack(">ihhih", 10, 0, 2, 1, -1), id="produce of old"),
    ],
)
def test_nonsense_closes_the_connection_with_one_line(server: MagnetarProcess, data: bytes) -> None:
    before = closings(server)
    with Wire(server.ports[0]) as wire:
        wire.send(data)
        assert wire.is_closed()
    eventually(lambda: closings(server) == before + 1, "one line in the log")
    still_serves(server)
    assert closings(server) == before + 1


def test_random_bytes_harm_no_other_client(server: MagnetarProcess) -> None:
    chance = random.Random(20261121)
    good = frame("metadata", 12, MetadataRequest([MetadataRequestTopic(name="random")]))
    before = resident_bytes(server)
    for _ in range(300):
        data = bytearray(good if chance.random() < 0.7 else chance.randbytes(chance.randint(1, 400)))
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with Wire(server.ports[0]) as wire:
            wire.send(bytes(data))
            if chance.random() < 0.5:
                wire.socket.shutdown(socket.SHUT_WR)
                wire.receive(1 << 20)
    still_serves(server)
    assert resident_bytes(server) < before + 100 * MIB


def test_an_unknown_version_of_api_versions_is_answered_so_that_the_client_can_step_down(wire: Wire) -> None:
    wire.send(struct.pack(">ihhihbbbb", 14, 18, 99, 7, -1, 0, 1, 1, 0))
    answer = wire.answer("api_versions", 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {(one.api_key, one.max_version) for one in answer.api_keys} >= {(18, 4)}
    assert wire.ask("api_versions", 3, ApiVersionsRequest("a", "1")).error_code == 0


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        pytest.param(record_batch([b"v"], wrong_crc=True), ErrorCode.CORRUPT_MESSAGE, id="checksum"),
        pytest.param(record_batch([b"v"])[:-1], ErrorCode.INVALID_RECORD, id="cut short"),
        pytest.param(record_batch([b"v"])[:40], ErrorCode.INVALID_RECORD, id="half a header"),
        pytest.param(record_batch([b"v"]) * 2, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(
            record_batch([b"v"], count=2_000_000_000), ErrorCode.INVALID_RECORD, id="claims 2e9 records"
        ),
        pytest.param(record_batch([], count=0), ErrorCode.INVALID_RECORD, id="no records"),
        pytest.param(record_batch([b"v"], count=-5), ErrorCode.INVALID_RECORD, id="minus five records"),
        pytest.param(record_batch([b"v"], attributes=0x20), ErrorCode.INVALID_RECORD, id="control batch"),
        pytest.param(record_batch([b"v"], attributes=7), ErrorCode.INVALID_RECORD, id="compression 7"),
        pytest.param(record_batch([b"v"], magic=3), ErrorCode.CORRUPT_MESSAGE, id="magic 3"),
        pytest.param(record_batch([b"x" * 1_100_000]), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
        pytest.param(
            record_batch([b"v"], timestamp_ms=1 << 50), ErrorCode.INVALID_TIMESTAMP, id="from the far future"
        ),
        pytest.param(
            record_batch([b"v"], producer=(5, -1, 0)), ErrorCode.INVALID_RECORD, id="producer without epoch"
        ),
    ],
)
def test_a_bad_batch_gets_its_code_and_leaves_nothing(
    wire: Wire, topic: str, batch: bytes, code: ErrorCode
) -> None:
    answer = wire.produce(topic, batch)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert wire.offset_of(topic, -1) == (0, 0)
    assert wire.produce(topic, record_batch([b"good"])).base_offset == 0
    assert values_of(payload(wire.fetch(topic, 0))) == [b"good"]


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_are_refused(wire: Wire, topic: str, magic: int) -> None:
    message = struct.pack(">bbii", magic, 0, -1, 1) + b"v"
    old = struct.pack(">qi", 0, len(message) + 4) + struct.pack(">I", 0) + message
    answer = wire.produce(topic, old.ljust(61, b"\0"))
    assert answer.error_code in (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_RECORD)
    assert wire.offset_of(topic, -1) == (0, 0)


def test_sequences_and_epochs_out_of_step_are_refused(wire: Wire, topic: str) -> None:
    def send(epoch: int, sequence: int, count: int = 1) -> tuple[ErrorCode, int]:
        answer = wire.produce(topic, record_batch([b"v"] * count, producer=(77, epoch, sequence)))
        return ErrorCode(answer.error_code), answer.base_offset

    assert send(1, 0, 3) == (ErrorCode.NONE, 0)
    assert send(1, 5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, 3) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(2, 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(1, 3) == (ErrorCode.NONE, 3)
    assert send(1, 0, 3) == (ErrorCode.NONE, 0)
    assert send(1, 3) == (ErrorCode.NONE, 3)
    assert wire.offset_of(topic, -1) == (0, 4)


def test_unknown_topics_partitions_ids_and_names(wire: Wire, topic: str) -> None:
    batch = record_batch([b"v"])
    assert wire.produce("nobody-made-this", batch).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, batch, index=99).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, batch, index=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce(topic, batch, acks=7).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    by_id = ProduceRequest(
        acks=-1,
        topic_data=[TopicProduceData(topic_id=b"\7" * 16, partition_data=[PartitionProduceData(0, batch)])],
    )
    answer = wire.ask("produce", 13, by_id).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    for name in ("", ".", "..", "a b", "x" * 250, "\u00fc", "a/b", "a\x00b"):
        asked = wire.ask("metadata", 12, MetadataRequest([MetadataRequestTopic(name=name)]))
        assert asked.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, name
    assert wire.fetch(topic, 0, index=99).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch(topic, 0, current_leader_epoch=99).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_announced_and_not_sent_costs_nothing(server: MagnetarProcess, wire: Wire, topic: str) -> None:
    before = resident_bytes(server)
    waiting = [Wire(server.ports[0]) for _ in range(200)]
    try:
        for number, other in enumerate(waiting):
            other.send(struct.pack(">i", 100 * MIB)[: 3 if number % 2 else 4])
        assert wire.produce(topic, record_batch([b"x" * 900_000])).error_code == 0
        assert len(payload(wire.fetch(topic, 0))) > 900_000
        assert resident_bytes(server) < before + 100 * MIB
    finally:
        for other in waiting:
            other.socket.close()
    still_serves(server)


def test_a_thousand_connections_are_served(server: MagnetarProcess) -> None:
    many = [Wire(server.ports[0]) for _ in range(1000)]
    try:
        for one in many:
            one.send(frame("api_versions", 3, ApiVersionsRequest("a", "1")))
        for one in many:
            assert one.answer("api_versions", 3).error_code == 0
    finally:
        for one in many:
            one.socket.close()
    still_serves(server)


def test_a_reader_that_never_reads_holds_up_no_other_client(
    server: MagnetarProcess, wire: Wire, topic: str
) -> None:
    for _ in range(50):
        assert wire.produce(topic, record_batch([b"x" * 1_000_000])).error_code == 0
    before = resident_bytes(server)
    asked = frame("fetch", 12, fetch_request(topic, 0))
    with Wire(server.ports[0], receive_buffer=4096) as lazy:
        for _ in range(100):  # fifty megabytes each
            lazy.send(asked)
        # Each answer comes before `lazy` has read a byte, or the wire runs out of patience.
        for _ in range(20):
            assert wire.produce(topic, record_batch([b"y"])).error_code == 0
            # Answers may be smaller while those that are not taken are in memory, and they do come.
            assert len(payload(wire.fetch(topic, 0))) >= 1_000_000
        assert resident_bytes(server) < before + 400 * MIB
        # It gets what it asked for all the same.
        assert len(payload(lazy.answer("fetch", 12).responses[0].partitions[0])) >= 1_000_000
    still_serves(server)


def test_requests_without_an_answer_and_pipelined_ones_keep_their_order(wire: Wire, topic: str) -> None:
    data = bytearray()
    for number in range(200):
        acks = 0 if number % 3 == 0 else -1
        batch = record_batch([str(number).encode()])
        data += frame("produce", 9, produce_request(topic, batch, acks=acks), correlation_id=number)
        if number % 10 == 0:
            data += frame("fetch", 12, fetch_request(topic, 0, max_wait_ms=50), correlation_id=1000 + number)
    for start in range(0, len(data), 7001):
        wire.send(bytes(data[start : start + 7001]))
    for number in range(200):
        if number % 3:
            answer = wire.answer("produce", 9).responses[0].partition_responses[0]
            assert (wire.correlation_id, answer.error_code, answer.base_offset) == (number, 0, number)
        if number % 10 == 0:
            wire.answer("fetch", 12)
            assert wire.correlation_id == 1000 + number
    assert values_of(payload(wire.fetch(topic, 0))) == [str(number).encode() for number in range(200)]


def test_a_request_that_comes_byte_by_byte_is_a_request(wire: Wire, topic: str) -> None:
    wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for number in range(3):
        for byte in frame(
            "produce", 9, produce_request(topic, record_batch([b"slow"])), correlation_id=number
        ):
            wire.send(bytes([byte]))
        assert wire.answer("produce", 9).responses[0].partition_responses[0].base_offset == number
        assert wire.correlation_id == number
