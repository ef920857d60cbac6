"""Frames that real clients and a real broker exchanged are read to the last byte, and written again unchanged."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from magnetar.wire.kafka.messages import asking, consumer_protocol_subscription
from magnetar.wire.kafka.runtime import ZERO_UUID, Buffer
from tests.fuzz.kafka_instances import snake

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Frame:
    client: str
    api: str
    version: int
    kind: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.client}-{self.api}-v{self.version}-{self.kind}"

    @property
    def module(self) -> ModuleType:
        return import_module(f"magnetar.wire.kafka.messages.{snake(self.api)}")

    @property
    def decode(self) -> Any:
        if self.kind == "request":
            return self.module.decode_request
        return asking.load(self.module.API_KEY).decode_response

    @property
    def encode(self) -> Any:
        if self.kind == "response":
            return self.module.encode_response
        return asking.load(self.module.API_KEY).encode_request

    def read(self) -> tuple[bytes, object]:
        """The header written again, and the body."""
        key = self.module.API_KEY
        if self.kind == "request":
            header = decode_request_header(memoryview(self.data))
            assert (header.api_key, header.api_version) == (key, self.version)
            start = header.position
            again = encode_request_header(key, self.version, header.correlation_id, header.client_id)
        else:
            correlation_id, start = decode_response_header(memoryview(self.data), key, self.version)
            again = encode_response_header(key, self.version, correlation_id)
        return again, self.decode(self.version, memoryview(self.data), start)


def frames() -> list[Frame]:
    found = []
    for path in sorted(GOLDEN.glob("*.txt")):
        for line in path.read_text(encoding="ascii").splitlines():
            if not line.startswith("#"):
                api, version, kind, data = line.split()
                found.append(Frame(path.stem, api, int(version), kind, bytes.fromhex(data)))
    return found


FRAMES = frames()


def body(name: str) -> Any:
    return next(frame for frame in FRAMES if str(frame) == name).read()[1]


def test_both_clients_are_there_in_both_directions() -> None:
    assert {(frame.client, frame.kind) for frame in FRAMES} == {
        (client, kind) for client in ("java", "librdkafka") for kind in ("request", "response")
    }
    assert len(FRAMES) > 80


@pytest.mark.parametrize("frame", FRAMES, ids=str)
def test_a_recorded_frame_is_written_as_it_was_read(frame: Frame) -> None:
    header, message = frame.read()
    out: list[Buffer] = [header]
    frame.encode(frame.version, message, out)
    assert b"".join(out) == frame.data


# What the recorded sessions did, said in our classes: two fields mixed up would survive being written again.


def test_librdkafka_produces_by_name() -> None:
    request = body("librdkafka-Produce-v10-request")
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 30000, None)
    [topic] = request.topic_data
    assert (topic.name, topic.topic_id) == ("golden", ZERO_UUID)
    [partition] = topic.partition_data
    assert partition.index == 1
    assert partition.records[16] == 2  # the magic of a record batch


def test_the_java_client_produces_by_id() -> None:
    [topic] = body("java-Produce-v13-request").topic_data
    [described] = body("java-Metadata-v13-response").topics
    assert topic.topic_id == described.topic_id != ZERO_UUID
    assert {partition.index for partition in topic.partition_data} == {1, 2}


def test_metadata_describes_the_topic() -> None:
    response = body("java-Metadata-v13-response")
    [broker] = response.brokers
    assert (broker.node_id, broker.host, broker.rack) == (1, "127.0.0.1", None)
    [topic] = response.topics
    assert (topic.name, topic.is_internal) == ("jgolden", False)
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in topic.partitions] == [
        (index, 1, [1]) for index in range(3)
    ]


def test_a_fetch_carries_the_records_that_were_produced() -> None:
    sent = {
        partition.index: bytes(partition.records)
        for partition in body("java-Produce-v13-request").topic_data[0].partition_data
    }
    partitions = body("java-Fetch-v18-response").responses[0].partitions
    got = {
        partition.partition_index: bytes(partition.records) for partition in partitions if partition.records
    }
    assert got.keys() == sent.keys()
    # The broker fills in the base offset and the leader epoch; the checksum and all that it covers stay.
    assert {index: batch[16:] for index, batch in got.items()} == {i: batch[16:] for i, batch in sent.items()}
    assert all(
        partition.high_watermark == len(got.get(partition.partition_index, b"")[:1])
        for partition in partitions
    )


def test_a_static_member_joins_a_classic_group() -> None:
    request = body("librdkafka-JoinGroup-v5-request")
    assert (request.group_id, request.group_instance_id, request.member_id) == ("g-golden", "member-1", "")
    assert [protocol.name for protocol in request.protocols] == ["range", "roundrobin"]
    metadata = memoryview(request.protocols[0].metadata)
    subscription = consumer_protocol_subscription.decode(int.from_bytes(metadata[:2], "big"), metadata, 2)
    assert (subscription.topics, subscription.generation_id) == (["golden"], -1)


def test_the_new_group_protocol_assigns_by_topic_id() -> None:
    response = body("java-ConsumerGroupHeartbeat-v1-response")
    assert (response.error_code, response.member_epoch, response.heartbeat_interval_ms) == (0, 2, 5000)
    [assigned] = response.assignment.topic_partitions
    assert assigned.partitions == [0, 1, 2]
    [group] = body("java-OffsetFetch-v10-request").groups
    assert (group.group_id, group.member_epoch, group.topics[0].topic_id) == ("jg848", 2, assigned.topic_id)


def test_an_error_answer_says_which() -> None:
    [result] = body("librdkafka-DeleteGroups-v2-response").results
    assert (result.group_id, ErrorCode(result.error_code)) == ("g-golden", ErrorCode.NON_EMPTY_GROUP)


def test_the_client_gives_its_name() -> None:
    request = body("java-ApiVersions-v4-request")
    assert (request.client_software_name, request.client_software_version) == ("apache-kafka-java", "4.3.1")
