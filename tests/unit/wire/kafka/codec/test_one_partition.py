"""Produce of one partition is read and written as by the generated codec, whatever there is in it."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.kafka import one_partition
from magnetar.wire.kafka.messages import asking, produce
from magnetar.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from magnetar.wire.kafka.one_partition import decode_produce_request, encode_produce_response

VERSIONS = range(produce.VERSIONS[0], produce.VERSIONS[1] + 1)
INT16, INT32 = st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UUID = st.binary(min_size=16, max_size=16)
NAMES = st.sampled_from(["", "t", "größe", "n" * 126, "n" * 127, "n" * 249])
RECORDS = st.sampled_from(
    [None, *(bytes(size) for size in (0, 1, 61, 125, 126, 127, 200, 16_382, 16_383, 70_000))]
)

some_partitions = st.lists(st.builds(PartitionProduceData, INT32, RECORDS), max_size=2)
some_topics = st.lists(st.builds(TopicProduceData, NAMES, UUID, some_partitions), max_size=2)
requests = st.builds(ProduceRequest, st.sampled_from([None, None, "", "id"]), INT16, INT32, some_topics)

rows = st.builds(
    PartitionProduceResponse,
    INT32,
    st.sampled_from([0, 0, 0, 3]),
    INT64,
    INT64,
    INT64,
    st.lists(st.builds(BatchIndexAndErrorMessage, INT32, st.none()), max_size=1),
    st.sampled_from([None, None, "", "why"]),
    st.sampled_from([None, None, LeaderIdAndEpoch(1, 2)]),
)
responses = st.builds(
    ProduceResponse,
    st.lists(st.builds(TopicProduceResponse, NAMES, UUID, st.lists(rows, max_size=2)), max_size=2),
    INT32,
    st.sampled_from([[], [], [NodeEndpoint(1, "host", 9092, None)]]),
)
A_BATCH = TopicProduceData("t", bytes(16), [PartitionProduceData(0, bytes(200))])


def wire_of(version: int, request: ProduceRequest) -> bytes:
    parts: list[Any] = []
    asking.load(produce.API_KEY).encode_request(version, request, parts)
    return b"".join(parts)


def outcome(decode: Any, version: int, data: bytes) -> object:
    try:
        return decode(version, memoryview(data), 0)
    except WireError as error:
        return str(error)


@given(st.sampled_from(VERSIONS), requests, st.binary(max_size=3))
def test_a_request_says_the_same(version: int, request: ProduceRequest, behind: bytes) -> None:
    data = wire_of(version, request) + behind
    assert outcome(decode_produce_request, version, data) == outcome(produce.decode_request, version, data)


@given(st.sampled_from(VERSIONS), st.data())
def test_damage_is_told_in_the_same_words(version: int, data: st.DataObject) -> None:
    frame = bytearray(wire_of(version, ProduceRequest(None, -1, 30_000, [A_BATCH])))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, min(len(frame) - 1, 48)))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    for one in (bytes(frame), cut):
        assert outcome(decode_produce_request, version, one) == outcome(produce.decode_request, version, one)


@given(st.sampled_from(VERSIONS), responses)
@example(13, ProduceResponse([TopicProduceResponse("", b"i" * 16, [PartitionProduceResponse(7, 0, 5)])], 9))
def test_a_response_has_the_same_bytes(version: int, response: ProduceResponse) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    encode_produce_response(version, response, ours)
    produce.encode_response(version, response, theirs)
    assert b"".join(ours) == b"".join(theirs)


@pytest.mark.parametrize("version", range(9, 14))
def test_one_partition_needs_no_generated_codec(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wire_of(version, ProduceRequest(None, -1, 30_000, [A_BATCH]))
    expected = produce.decode_request(version, memoryview(data))
    answer = ProduceResponse([TopicProduceResponse("t", bytes(16), [PartitionProduceResponse(0, 0, 5)])])
    monkeypatch.setattr(one_partition, "produce", None)
    assert decode_produce_request(version, memoryview(data)) == expected
    parts: list[Any] = []
    encode_produce_response(version, answer, parts)
    assert len(parts) == 1
